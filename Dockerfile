# docker build -t poskernel . && docker run -p 8501:8501 -v poskernel-cache:/var/cache/poskernel poskernel
FROM python:3.11-slim

# An index that serves torch alone, such as one of CPU-only builds; empty: pip's own.
ARG TORCH_INDEX_URL=

ENV PYTHONUNBUFFERED=1 \
    POSKERNEL_CACHE=/var/cache/poskernel \
    HF_HOME=/var/cache/huggingface

RUN useradd --create-home --shell /usr/sbin/nologin poskernel \
    && install -d -o poskernel -g poskernel "$POSKERNEL_CACHE" "$HF_HOME"

WORKDIR /app
COPY requirements.txt ./
RUN pip install --no-cache-dir ${TORCH_INDEX_URL:+--index-url "$TORCH_INDEX_URL"} \
        "$(grep '^torch==' requirements.txt)" \
    && pip install --no-cache-dir -r requirements.txt

COPY . .
RUN python -m compileall -q app.py serve.py pages poskernel_core serving

USER poskernel

EXPOSE 8501
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8501/_stcore/health', timeout=4)"]
CMD ["python", "-m", "streamlit", "run", "serve.py", "--server.address=0.0.0.0"]
