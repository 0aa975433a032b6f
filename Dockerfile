# steadytrain with PyTorch for the CPU: `docker build -t steadytrain .`
#
#     docker run --rm --user "$(id -u):$(id -g)" -v "$PWD:/work" steadytrain run train.py
#     docker run --rm --user "$(id -u):$(id -g)" -v "$PWD:/work" steadytrain analyze log.csv
#
# With your own user the run folder can be written into the mounted folder, and is yours.
# A GPU needs an image with a CUDA build of torch: install the wheel of the first stage there.

FROM python:3.11-slim AS wheel
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip install --no-cache-dir "hatchling>=1.24" && pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels .

FROM python:3.11-slim
# Compiled models need a C++ compiler at run time.
RUN apt-get update && apt-get install --yes --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
COPY constraints.txt /tmp/constraints.txt
COPY --from=wheel /wheels /tmp/wheels
RUN pip install --no-cache-dir --constraint /tmp/constraints.txt --extra-index-url https://download.pytorch.org/whl/cpu torch \
    && pip install --no-cache-dir --constraint /tmp/constraints.txt "$(ls /tmp/wheels/steadytrain-*.whl)[report,query]" \
    && rm -rf /tmp/wheels /tmp/constraints.txt
RUN useradd --create-home trainer
# Any user may be asked for: it has a home for caches, and a name, which torch's compiler asks for.
ENV HOME=/tmp LOGNAME=trainer
USER trainer
WORKDIR /work
ENTRYPOINT ["steadytrain"]
CMD ["--help"]
