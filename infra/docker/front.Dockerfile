# The HTTP front with the functions: docker build -f infra/docker/front.Dockerfile .
FROM python:3.11.14-slim-bookworm
WORKDIR /keylane
RUN useradd --create-home --uid 1000 keylane
ENV PYTHONPATH=/keylane/layers/keylane/python:/keylane/infra/local:/keylane/infra/serve
# The packages, before the sources: a changed source needs no download.
COPY infra/docker/front-requirements.txt ./
RUN pip install --no-cache-dir --require-hashes --only-binary :all: --requirement front-requirements.txt
COPY layers layers
COPY spark spark
COPY infra infra
COPY functions functions
COPY clients/console clients/console
USER 1000:1000
EXPOSE 8080
ENTRYPOINT ["python", "-m", "keylane_local.front.server", "--host", "0.0.0.0", "--port", "8080", "--function-log", "/dev/stderr"]
