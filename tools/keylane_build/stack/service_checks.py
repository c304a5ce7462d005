"""What AWS refuses of services on ECS and their load balancers, and cfn-lint does not see.

The limits are those of the pages on Elastic Load Balancing, ECS and Application Auto Scaling. Some are ours:
what a server needs that is behind a load balancer.
"""

from collections.abc import Iterator
from typing import Any

from keylane_build.stack.loading import Resources, of_type

MAX_STOP_TIMEOUT_S = 120
"""Of a container on Fargate."""
HEALTH_CHECK = {"StartPeriod": (0, 300), "Interval": (5, 300), "Timeout": (2, 120), "Retries": (1, 10)}
"""What ECS takes of a container's health check."""
MAX_DEREGISTRATION_DELAY_S = 3_600
ALL_PERCENT = 100
MIN_BALANCER_SUBNETS = 2
_BALANCING = "AWS::ElasticLoadBalancingV2::"
_DRAIN = "--drain-s"


def check_services(resources: Resources) -> Iterator[str]:
    """Yield what is wrong with services, load balancers and scaling."""
    yield from _balancers(resources)
    yield from _target_groups(resources)
    yield from _containers(resources)
    yield from _health_checks(resources)
    yield from _deployments(resources)
    yield from _ports(resources)
    yield from _scaling(resources)


def _balancers(resources: Resources) -> Iterator[str]:
    schemes = {}
    for name, properties in of_type(resources, _BALANCING + "LoadBalancer"):
        subnets = properties.get("Subnets") or []
        if len(set(subnets)) < MIN_BALANCER_SUBNETS:
            yield f"{name}: a load balancer needs subnets in two zones, not {len(set(subnets))}"
        schemes[name] = properties.get("Scheme", "internet-facing")
    for name, properties in of_type(resources, _BALANCING + "Listener"):
        secure = properties.get("Protocol") == "HTTPS"
        if secure and not properties.get("Certificates"):
            yield f"{name}: HTTPS needs a certificate"
        balancer = str(properties.get("LoadBalancerArn"))
        public = [
            each for each, scheme in schemes.items() if scheme != "internal" and f"-{each}-" in balancer
        ]
        if public and not secure:
            yield f"{name}: {public[0]} is internet-facing: tokens would cross the internet in the clear"


def _target_groups(resources: Resources) -> Iterator[str]:
    for name, properties in of_type(resources, _BALANCING + "TargetGroup"):
        timeout = int(properties.get("HealthCheckTimeoutSeconds", 5))
        interval = int(properties.get("HealthCheckIntervalSeconds", 30))
        if timeout >= interval:
            yield f"{name}: a health check of {timeout} s does not end within its interval of {interval} s"
        delay = _delay_s(properties)
        if not 0 <= delay <= MAX_DEREGISTRATION_DELAY_S:
            yield f"{name}: the deregistration delay is {delay} s, not from 0 to {MAX_DEREGISTRATION_DELAY_S}"


def _containers(resources: Resources) -> Iterator[str]:
    longest_delay = max(
        (_delay_s(each) for _, each in of_type(resources, _BALANCING + "TargetGroup")), default=None
    )
    for name, properties in of_type(resources, "AWS::ECS::TaskDefinition"):
        for container in properties.get("ContainerDefinitions") or ():
            stop = int(container.get("StopTimeout", 30))
            if stop > MAX_STOP_TIMEOUT_S:
                yield f"{name}: a StopTimeout of {stop} s; Fargate takes {MAX_STOP_TIMEOUT_S}"
            drain = _option(container, _DRAIN)
            if drain is None:
                continue
            if drain >= stop:
                yield f"{name}: the server drains for {drain} s, but is killed after {stop} s (StopTimeout)"
            if longest_delay is not None and longest_delay < drain:
                yield f"{name}: requests may take {drain} s, but a target is removed after {longest_delay} s"


def _health_checks(resources: Resources) -> Iterator[str]:
    for name, properties in of_type(resources, "AWS::ECS::TaskDefinition"):
        for container in properties.get("ContainerDefinitions") or ():
            given = container.get("HealthCheck") or {}
            for option, (least, most) in HEALTH_CHECK.items():
                value = int(given.get(option, least))
                if not least <= value <= most:
                    yield f"{name}: {option} of a health check is {value}, not from {least} to {most}"


def _deployments(resources: Resources) -> Iterator[str]:
    """A deployment ends with tasks that work, or returns to those that did."""
    checked = {
        name
        for name, properties in of_type(resources, "AWS::ECS::TaskDefinition")
        if any(each.get("HealthCheck") for each in properties.get("ContainerDefinitions") or ())
    }
    for name, properties in of_type(resources, "AWS::ECS::Service"):
        given = properties.get("DeploymentConfiguration") or {}
        breaker = given.get("DeploymentCircuitBreaker") or {}
        if not (breaker.get("Enable") and breaker.get("Rollback")):
            yield f"{name}: without a circuit breaker that rolls back, a failed deployment takes hours"
        if int(given.get("MinimumHealthyPercent", ALL_PERCENT)) < ALL_PERCENT:
            yield f"{name}: the task that works is stopped before another one works (MinimumHealthyPercent)"
        task = str(properties.get("TaskDefinition"))
        if not properties.get("LoadBalancers") and not any(f"-{each}-" in task for each in checked):
            yield f"{name}: neither a load balancer nor a HealthCheck says whether a task works"


def _ports(resources: Resources) -> Iterator[str]:
    open_ports = {
        (container["Name"], int(mapping["ContainerPort"]))
        for _, properties in of_type(resources, "AWS::ECS::TaskDefinition")
        for container in properties.get("ContainerDefinitions") or ()
        for mapping in container.get("PortMappings") or ()
    }
    for name, properties in of_type(resources, "AWS::ECS::Service"):
        for each in properties.get("LoadBalancers") or ():
            target = each["ContainerName"], int(each["ContainerPort"])
            if target not in open_ports:
                yield f"{name}: no container {target[0]} has the port {target[1]} open"


def _scaling(resources: Resources) -> Iterator[str]:
    for name, properties in of_type(resources, "AWS::ApplicationAutoScaling::ScalableTarget"):
        least, most = int(properties["MinCapacity"]), int(properties["MaxCapacity"])
        if least > most:
            yield f"{name}: the least capacity, {least}, is above the largest, {most}"


def _delay_s(target_group: dict[str, Any]) -> int:
    for each in target_group.get("TargetGroupAttributes") or ():
        if each["Key"] == "deregistration_delay.timeout_seconds":
            return int(each["Value"])
    return 300


def _option(container: dict[str, Any], name: str) -> int | None:
    """Return the number after an option of a container's command, None without it."""
    command = [str(each) for each in container.get("Command") or ()]
    return int(command[command.index(name) + 1]) if name in command[:-1] else None
