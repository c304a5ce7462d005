# python:3.11-slim: an interpreter and pip under /usr/local.
FROM keylane-stand-in/debian:bookworm
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3-venv \
    && rm -rf /var/lib/apt/lists/* \
    && python3 -m venv /usr/local \
    # redis needs it before Python 3.11.3; the image that this stands for is newer.
    && /usr/local/bin/pip install --no-cache-dir async-timeout==5.0.1
