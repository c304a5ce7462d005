# valkey/valkey: Debian's Valkey, as an unprivileged user and in /data.
FROM keylane-stand-in/debian:trixie
RUN apt-get update \
    && apt-get install --yes --no-install-recommends valkey-server valkey-tools \
    && rm -rf /var/lib/apt/lists/* \
    && mkdir -p /data && chown valkey:valkey /data
WORKDIR /data
USER valkey
CMD ["valkey-server"]
