# All of it, from the wheels of `make release`: docker build -f infra/docker/keylane.Dockerfile .
FROM eclipse-temurin:17.0.17_10-jre AS java

FROM python:3.11.14-slim-bookworm
WORKDIR /keylane
ENV JAVA_HOME=/opt/java PATH=/opt/java/bin:$PATH
# Java takes a user's home from the list of users: without an entry Spark's Ivy begins with an error.
RUN useradd --create-home --uid 1000 keylane \
    && mkdir work && chown keylane work \
    && apt-get update && apt-get install --yes --no-install-recommends redis-server \
    && rm -rf /var/lib/apt/lists/*
COPY --from=java /opt/java/openjdk /opt/java
# The packages, before our own wheels: a changed source needs no download. PySpark has no wheel: pip builds one.
COPY infra/docker/build-requirements.txt dist/keylane-*-requirements.txt ./
RUN pip install --no-cache-dir --require-hashes --only-binary :all: --requirement build-requirements.txt \
    && pip install --no-cache-dir --require-hashes --no-build-isolation --requirement keylane-*-requirements.txt
COPY dist/*.whl ./
RUN pip install --no-cache-dir --no-index --no-deps *.whl
COPY infra/docker/keylane.sh /usr/local/bin/keylane-in-container
USER 1000:1000
# What a first start would download, compared with our list of checksums.
RUN python -c "from keylane_local.setup.prerequisites import fetch_jars; fetch_jars()" \
    && rm -r ~/.cache/keylane/*/ivy-cache
WORKDIR /keylane/work
EXPOSE 8080
ENTRYPOINT ["keylane-in-container"]
CMD ["--help"]
