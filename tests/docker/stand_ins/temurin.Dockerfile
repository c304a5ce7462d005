# eclipse-temurin:17-jre: one folder with Java, without links to elsewhere.
FROM keylane-stand-in/debian:bookworm
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/* \
    && mkdir /opt/java && cp --recursive --dereference "$(ls -d /usr/lib/jvm/java-17-*)" /opt/java/openjdk
ENV JAVA_HOME=/opt/java/openjdk PATH=/opt/java/openjdk/bin:$PATH
