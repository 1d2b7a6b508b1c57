# Remove files that no server needs from an environment: tests, headers, notebook extensions.
# `sh trim_packages.sh /opt/packages`: the images are built with it.
set -e
cd "$1"/lib/python3*/site-packages
rm -rf numpy/_core/include numpy/_core/lib plotly/labextension pydeck/nbextension \
    pyarrow/include pyarrow/src pyarrow/lib*_flight.so* pyarrow/_flight.* pyarrow/_s3fs.* \
    pyarrow/libarrow_s3.so* torch/bin/*[Tt]est* torch/bin/protoc* torch/include torch/share torch/test
for package in numpy pandas pyarrow scipy sympy; do
    if [ -d "$package" ]; then find "$package" -type d -name tests -prune -exec rm -rf {} +; fi
done
