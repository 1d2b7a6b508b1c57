# Two images. The full image, which also computes:
#   docker build -t poskernel .
# The image that only shows stored results, at less than half the size:
#   docker build -t poskernel-serving --target serving .
# Both run with a read-only root file system, and write only to one volume:
#   docker run --read-only -p 8501:8501 -v poskernel-cache:/var/cache/poskernel poskernel
FROM python:3.11-slim AS base
ENV PATH=/opt/packages/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    POSKERNEL_CACHE=/var/cache/poskernel \
    HF_HOME=/var/cache/poskernel/hub \
    POSKERNEL_ALLOW_ANY_MODEL=0
RUN useradd --uid 1000 --create-home --shell /usr/sbin/nologin poskernel \
    && install -d -o poskernel -g poskernel "$POSKERNEL_CACHE"
WORKDIR /app
EXPOSE 8501
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8501/health', timeout=4)"]
CMD ["python", "-m", "streamlit", "run", "serve.py", "--server.address=0.0.0.0"]

# Bytecode is compiled here once: the user of the image cannot write any.
FROM base AS code
COPY .streamlit ./.streamlit
COPY app.py serve.py LICENSE ./
# With the documentation's site, if `make docs` has built it.
COPY LICENSE build/sit[e] ./build/site/
COPY docs/concepts ./docs/concepts
COPY pages ./pages
COPY serving ./serving
COPY poskernel_core ./poskernel_core
RUN python -m compileall -q --invalidation-mode unchecked-hash .

# The pip of the base image installs the packages, so that the images contain no second pip.
FROM base AS packages
RUN python -m venv --without-pip /opt/packages
WORKDIR /build
COPY tools/trim_packages.sh ./

FROM packages AS serving-packages
COPY requirements-serving.txt ./
RUN pip --python /opt/packages/bin/python install --no-cache-dir -r requirements-serving.txt \
    && sh trim_packages.sh /opt/packages

FROM packages AS all-packages
# An index that serves only torch, such as an index of CPU builds; empty: pip's own.
ARG TORCH_INDEX_URL=
COPY requirements.txt ./
# Without transformer_lens, of which only the table of short model names is read.
RUN grep -v '^transformer_lens==' requirements.txt > served.txt \
    && pip --python /opt/packages/bin/python install --no-cache-dir \
        ${TORCH_INDEX_URL:+--index-url "$TORCH_INDEX_URL"} "$(grep '^torch==' served.txt)" \
    && pip --python /opt/packages/bin/python install --no-cache-dir -r served.txt \
    && sh trim_packages.sh /opt/packages

# Temporary files go to the volume, like all other files.
FROM base AS serving
ENV TMPDIR=$POSKERNEL_CACHE
COPY --from=serving-packages /opt/packages /opt/packages
COPY --from=code /app /app
USER 1000
VOLUME /var/cache/poskernel

FROM base AS all
ENV TMPDIR=$POSKERNEL_CACHE
COPY --from=all-packages /opt/packages /opt/packages
COPY --from=code /app /app
USER 1000
VOLUME /var/cache/poskernel
