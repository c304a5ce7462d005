# python:3.11-slim: an interpreter and pip under /usr/local.
FROM keylane-stand-in/debian:bookworm
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3-venv \
    && rm -rf /var/lib/apt/lists/* \
    && python3 -m venv /usr/local
