# apache/kafka: Kafka's own wrapper turns the variables into server.properties and formats the log.
FROM keylane-stand-in/temurin
RUN useradd --create-home appuser \
    && mkdir -p /etc/kafka/docker /mnt/shared/config /opt/kafka/config \
    && chown appuser /opt/kafka/config
COPY jars /opt/kafka/libs
COPY run /etc/kafka/docker/run
USER appuser
CMD ["/etc/kafka/docker/run"]
