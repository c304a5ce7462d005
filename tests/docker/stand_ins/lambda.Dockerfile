# public.ecr.aws/lambda/python:3.13: Lambda's runtime client, boto3, and where Lambda has its files.
# SAM adds the emulator of the runtime interface itself.
FROM keylane-stand-in/debian:trixie
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3-venv \
    && rm -rf /var/lib/apt/lists/* \
    && python3 -m venv /var/lang \
    && /var/lang/bin/pip install --no-cache-dir --only-binary :all: awslambdaric boto3 \
    && mkdir -p /var/runtime /var/task /opt
COPY bootstrap /var/runtime/bootstrap
ENV PATH=/var/lang/bin:/usr/local/bin:/usr/bin:/bin:/opt/bin \
    LD_LIBRARY_PATH=/var/lang/lib:/lib64:/usr/lib64:/var/runtime:/var/runtime/lib:/var/task:/var/task/lib:/opt/lib \
    LAMBDA_TASK_ROOT=/var/task LAMBDA_RUNTIME_DIR=/var/runtime LANG=en_US.UTF-8 TZ=:/etc/localtime
WORKDIR /var/task
ENTRYPOINT ["/var/runtime/bootstrap"]
