"""Topics as tables of Spark: `spark.read.format("keylane")`. Needs Spark 4.1 or later, and its pyarrow.

from keylane_client.spark import register

register(spark)
flights = spark.read.format("keylane").option("url", ...).option("topic", "flights").load()
"""

from keylane_client.spark.source import KeylaneDataSource, position_of, register

__all__ = ["KeylaneDataSource", "position_of", "register"]
