# The Spark job, one process on all cores: docker build -f infra/docker/job.Dockerfile .
FROM eclipse-temurin:17.0.17_10-jre AS java

FROM python:3.11.14-slim-bookworm
WORKDIR /keylane
ENV JAVA_HOME=/opt/java PATH=/opt/java/bin:$PATH KEYLANE_JARS=/keylane/jars KEYLANE_CHECKPOINT=/tmp/checkpoint
# Java takes a user's home from the list of users: without an entry Spark's Ivy begins with an error.
RUN useradd --create-home --uid 1000 keylane
COPY --from=java /opt/java/openjdk /opt/java
COPY pyproject.toml constraints.txt README.md LICENSE pom.xml ./
COPY layers layers
COPY spark spark
COPY infra infra
# The Ivy that PySpark includes downloads Spark's Kafka connector; its cache would be another 98 MB.
RUN pip install --no-cache-dir --constraint constraints.txt --editable ".[spark,registry,msk-iam]" boto3 \
    && java -cp "$(ls /usr/local/lib/python3.11/site-packages/pyspark/jars/ivy-*.jar)" org.apache.ivy.Main \
    -ivy pom.xml -confs runtime -retrieve "jars/[artifact]-[revision](-[classifier]).[ext]" -cache /tmp/ivy \
    && rm -r /tmp/ivy
COPY keylane.toml ./
USER 1000:1000
ENTRYPOINT ["python", "-m", "keylane_spark", "--config", "keylane.toml"]
