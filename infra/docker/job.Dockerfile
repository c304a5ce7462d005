# The Spark job, one process on all cores: docker build -f infra/docker/job.Dockerfile .
FROM eclipse-temurin:17.0.17_10-jre AS java

FROM python:3.11.14-slim-bookworm
WORKDIR /keylane
ENV JAVA_HOME=/opt/java PATH=/opt/java/bin:$PATH KEYLANE_JARS=/keylane/jars KEYLANE_CHECKPOINT=/tmp/checkpoint
# Java takes a user's home from the list of users: without an entry Spark's Ivy begins with an error.
RUN useradd --create-home --uid 1000 keylane
COPY --from=java /opt/java/openjdk /opt/java
ENV PYTHONPATH=/keylane/layers/keylane/python:/keylane/spark
# The packages, before the sources: a changed source needs no download. PySpark has no wheel: pip builds one.
COPY pom.xml infra/jars.sha256 local/keylane_local/jars.py ./
COPY infra/docker/build-requirements.txt infra/docker/job-requirements.txt ./
# The Ivy that PySpark includes downloads Spark's Kafka connector, and a broker, which stays outside like the cache.
# Each jar is compared with our list of checksums.
RUN pip install --no-cache-dir --require-hashes --only-binary :all: --requirement build-requirements.txt \
    && pip install --no-cache-dir --require-hashes --no-build-isolation --requirement job-requirements.txt \
    && java -cp "$(python -c 'import pyspark; print(*pyspark.__path__)')/jars/*" org.apache.ivy.Main \
    -ivy pom.xml -confs test -retrieve "/tmp/jars/[artifact]-[revision](-[classifier]).[ext]" -cache /tmp/ivy \
    && python jars.py /tmp/jars jars.sha256 \
    && mkdir jars && cd /tmp/jars \
    && mv spark-sql-kafka-0-10* spark-token-provider-kafka-0-10* kafka-clients* commons-pool2* aws-msk-iam-auth* \
    /keylane/jars \
    && rm -r /tmp/ivy /tmp/jars
COPY layers layers
COPY spark spark
COPY keylane.toml ./
USER 1000:1000
ENTRYPOINT ["python", "-m", "keylane_spark", "--config", "keylane.toml"]
