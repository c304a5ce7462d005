# The standing server, `keylane serve`: docker build -f infra/docker/server.Dockerfile .
FROM python:3.11.14-slim-bookworm
WORKDIR /keylane
RUN useradd --create-home --uid 1000 keylane
ENV PYTHONPATH=/keylane/layers/keylane/python:/keylane/cli:/keylane/local:/keylane/server
# The packages, before the sources: a changed source needs no download.
COPY infra/docker/server-requirements.txt ./
RUN pip install --no-cache-dir --require-hashes --only-binary :all: --requirement server-requirements.txt
COPY layers layers
COPY server server
COPY clients/console clients/console
# Of the command line, the one command and what it imports.
COPY local/keylane_local/__init__.py local/keylane_local/env_file.py local/keylane_local/errors.py local/keylane_local/tools.py local/keylane_local/
COPY cli/keylane_cli/__init__.py cli/keylane_cli/serve.py cli/keylane_cli/
USER 1000:1000
EXPOSE 8080
# No load balancer asks Docker; ECS and Kubernetes have checks of their own.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://localhost:8080/health/live', timeout=3)"]
# It listens on all addresses, so it asks for tokens. The last one of an option counts: `docker run IMAGE --authorization none`.
ENTRYPOINT ["python", "-m", "keylane_cli.serve", "--host", "0.0.0.0", "--port", "8080", "--authorization", "tokens"]
