package delta;

import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.streaming.Sink;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.sources.CreatableRelationProvider;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.sources.StreamSinkProvider;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.unsafe.Platform;
import pyspark_delta.Bridge;
import scala.Option;
import scala.collection.immutable.Map;
import scala.collection.immutable.Seq;

/**
 * The data source of the format delta.
 *
 * Spark finds the class by its package.  Reads never get here: the analyzer's hook resolves them.
 * Being a `TableProvider`, `saveAsTable` takes the way of catalog tables, and `save` comes to
 * `createRelation`, because the table has no capabilities.  A session that is not hooked gets the
 * data source in Python, which Spark would have found without this class.
 */
public class DefaultSource
    implements DataSourceRegister, TableProvider, CreatableRelationProvider, StreamSinkProvider {
    public String shortName() {
        return "delta";
    }

    // The data source in Python, for a session that is not hooked; else null.
    private TableProvider python;
    private boolean isDecided = false;

    private synchronized TableProvider python() {
        if (!isDecided) {
            isDecided = true;
            Option session = SparkSession.getActiveSession();
            if (session.isDefined() && !isHooked((SparkSession) session.get())) {
                PythonDataSourceV2 found = new PythonDataSourceV2();
                found.setShortName("delta");
                python = found;
            }
        }
        return python;
    }

    private static boolean isHooked(SparkSession session) {
        return session.sessionState().sqlParser() instanceof pyspark_delta.Parser;
    }

    public StructType inferSchema(CaseInsensitiveStringMap options) {
        return python() == null ? new StructType() : python().inferSchema(options);
    }

    public Transform[] inferPartitioning(CaseInsensitiveStringMap options) {
        return python() == null ? new Transform[0] : python().inferPartitioning(options);
    }

    public boolean supportsExternalMetadata() {
        return python() == null || python().supportsExternalMetadata();
    }

    public Table getTable(
        StructType schema, Transform[] partitioning, java.util.Map properties) {
        return python() == null
            ? (Table) new pyspark_delta.NoTable()
            : python().getTable(schema, partitioning, properties);
    }

    // What a table cannot have, Python refuses by name.
    public boolean supportsDataType(DataType type) {
        return true;
    }

    public BaseRelation createRelation(
        SQLContext context, SaveMode mode, Map options, Dataset rows) {
        try {
            Bridge.python.written(context.sparkSession(), mode.name(), options, rows);
        } catch (Throwable error) {
            Platform.throwException(error);
        }
        return new pyspark_delta.WrittenRelation(context, rows.schema());
    }

    public Sink createSink(
        SQLContext context, Map options, Seq partitionColumns, OutputMode mode) {
        try {
            return (Sink) Bridge.python.streamSink(
                context.sparkSession(), options, partitionColumns, mode.toString());
        } catch (Throwable error) {
            Platform.throwException(error);
            return null;
        }
    }
}
