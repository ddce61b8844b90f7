package pyspark_delta;

import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.Callable;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.analysis.UnresolvedIdentifier;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.analysis.UnresolvedTable;
import org.apache.spark.sql.catalyst.analysis.UnresolvedTableOrView;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.catalyst.plans.logical.CreateTable;
import org.apache.spark.sql.catalyst.plans.logical.CreateTableAsSelect;
import org.apache.spark.sql.catalyst.plans.logical.DeleteFromTable;
import org.apache.spark.sql.catalyst.plans.logical.InsertIntoStatement;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeIntoTable;
import org.apache.spark.sql.catalyst.plans.logical.ReplaceTable;
import org.apache.spark.sql.catalyst.plans.logical.ReplaceTableAsSelect;
import org.apache.spark.sql.catalyst.plans.logical.Statistics;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.plans.logical.TableSpecBase;
import org.apache.spark.sql.catalyst.plans.logical.UnresolvedDataSource;
import org.apache.spark.sql.catalyst.plans.logical.UpdateTable;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.streaming.WriteToStreamStatement;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.catalyst.trees.TreePattern;
import org.apache.spark.sql.catalyst.util.CaseInsensitiveMap;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.execution.command.RunnableCommand;
import org.apache.spark.sql.execution.command.SaveAsV1TableCommand;
import org.apache.spark.sql.execution.datasources.SaveIntoDataSourceCommand;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.sources.CreatableRelationProvider;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.Platform;
import scala.Function1;
import scala.collection.Iterator;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Map;
import scala.collection.immutable.Seq;
import scala.collection.mutable.ArrayBuffer;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractFunction2;
import scala.runtime.BoxedUnit;

/** What the hooks ask Python.  Every call has the session, so that no session holds Python. */
public interface Python {
    /** Called before the first plan of a session is analyzed. */
    void opened(Object session) throws Throwable;

    /** A plan for a statement of Delta's, a text that Spark's parser takes in its place, or null. */
    Object parsed(Object session, String sql, Object parameters) throws Throwable;

    /** The plan in the place of a node that is not analyzed, or null to keep it. */
    Object resolved(Object session, Object node) throws Throwable;

    /** Writes rows to the path in the options. */
    void written(Object session, String mode, Object options, Object rows) throws Throwable;

    /** The plan of an extension's message in Spark Connect; null for another extension. */
    Object relation(Object session, Object planner, byte[] message) throws Throwable;

    /** Runs an extension's message in Spark Connect; false for another extension. */
    boolean command(Object session, Object planner, byte[] message) throws Throwable;

    /** Calls a method of an object that Python has for the session; at most two arguments. */
    Object invoked(Object session, String kind, String method, Object first, Object second)
        throws Throwable;

    /** The sink of a stream. */
    Object streamSink(Object session, Object options, Object partitionColumns, String mode)
        throws Throwable;
}

/** The one place that knows the Python object, and what costs no call of it. */
public final class Bridge {
    public static volatile Python python;

    // Set on a thread that is in Python: what it parses there is for Spark's own parser.
    private static final ThreadLocal INSIDE = new ThreadLocal();
    public static Object parsed(Object session, String sql, Object parameters) throws Throwable {
        if (python == null || INSIDE.get() != null || !Statements.mayBeOurs(session, sql)) {
            return null;
        }
        INSIDE.set(Boolean.TRUE);
        try {
            return python.parsed(session, sql, parameters);
        } finally {
            INSIDE.remove();
        }
    }

    static Object resolved(Object session, LogicalPlan node) throws Throwable {
        return python == null ? null : python.resolved(session, node);
    }

    /** A name that Spark can resolve: a path has one in our catalog of paths. */
    static Seq named(Seq parts) {
        if (parts.size() != 2 || !"delta".equalsIgnoreCase((String) parts.head())
            || ((String) parts.last()).indexOf('/') < 0) {
            return parts;
        }
        ArrayBuffer made = new ArrayBuffer();
        made.addOne("pyspark_delta");
        made.addOne(parts.last());
        return made.toSeq();
    }
}

/** Hooks every session that is made with it, by `spark.sql.extensions`. */
public final class Extensions extends AbstractFunction1 {
    public Object apply(Object extensions) {
        ((SparkSessionExtensions) extensions).injectParser(new ParserBuilder());
        ((SparkSessionExtensions) extensions).injectHintResolutionRule(new ResolutionBuilder());
        return BoxedUnit.UNIT;
    }
}

public final class ParserBuilder extends AbstractFunction2 {
    public Object apply(Object session, Object parser) {
        return new Parser(session, (ParserInterface) parser);
    }
}

public final class ResolutionBuilder extends AbstractFunction1 {
    public Object apply(Object session) {
        return new Resolution(session);
    }
}

/** Gives nodes of plans to Python before Spark resolves them. */
public final class Resolution extends Rule {
    private static final Set NODES = new HashSet(Arrays.asList(new Object[] {
        "AppendData", "CreateTable", "CreateTableAsSelect", "DeleteFromTable",
        "InsertIntoStatement", "MergeIntoTable", "OverwriteByExpression",
        "OverwritePartitionsDynamic", "RelationChanges", "RelationTimeTravel", "ReplaceTable",
        "ReplaceTableAsSelect", "SaveAsV1TableCommand", "UnresolvedDataSource", "UnresolvedRelation", "UpdateTable"}));

    private final Object session;
    private volatile boolean isOpen = false;
    private boolean isOpening = false;

    public Resolution(Object session) {
        this.session = session;
    }

    public TreeNode apply(TreeNode plan) {
        try {
            open();
            return replaced((LogicalPlan) plan);
        } catch (Throwable error) {
            Platform.throwException(error);
            return plan;
        }
    }

    // Other threads wait until the session is open; plans of the opening itself do not.
    private void open() throws Throwable {
        if (isOpen || Bridge.python == null) {
            return;
        }
        synchronized (this) {
            if (!isOpening && !isOpen) {
                isOpening = true;
                try {
                    Bridge.python.opened(session);
                    isOpen = true;
                } finally {
                    isOpening = false;
                }
            }
        }
    }

    private LogicalPlan replaced(LogicalPlan plan) throws Throwable {
        if (plan.analyzed()) {
            return plan;
        }
        if (plan instanceof UnresolvedRelation && !mayBeOurs(plan)) {
            return named(plan, ((UnresolvedRelation) plan).multipartIdentifier());
        }
        if (plan instanceof SaveIntoDataSourceCommand) {
            return savedByUs((SaveIntoDataSourceCommand) plan);
        }
        if (plan instanceof WriteToStreamStatement) {
            return streamedByUs((WriteToStreamStatement) plan);
        }
        if (plan instanceof UnresolvedTable) {
            return named(plan, ((UnresolvedTable) plan).multipartIdentifier());
        }
        if (plan instanceof UnresolvedIdentifier) {
            return named(plan, ((UnresolvedIdentifier) plan).nameParts());
        }
        if (plan instanceof UnresolvedTableOrView) {
            return named(plan, ((UnresolvedTableOrView) plan).multipartIdentifier());
        }
        if (NODES.contains(plan.getClass().getSimpleName()) && mayBeOurs(plan)) {
            Object found = Bridge.resolved(session, plan);
            if (found != null) {
                return (LogicalPlan) found;
            }
        }
        boolean isChanged = false;
        ArrayBuffer children = new ArrayBuffer();
        Iterator each = plan.children().iterator();
        while (each.hasNext()) {
            LogicalPlan child = (LogicalPlan) each.next();
            LogicalPlan made = replaced(child);
            isChanged = isChanged || made != child;
            children.addOne(made);
        }
        return isChanged ? (LogicalPlan) plan.withNewChildren(children.toSeq()) : plan;
    }

    /** A write that goes to our source: where delta-spark's JAR is, Spark finds its source first. */
    private static LogicalPlan savedByUs(SaveIntoDataSourceCommand save) throws Throwable {
        if (Bridge.python == null || !isDeltaSparks(save.dataSource())) {
            return save;
        }
        Object source = Class.forName("delta.DefaultSource").getDeclaredConstructor(new Class[0])
            .newInstance(new Object[0]);
        return new SaveIntoDataSourceCommand(
            save.query(), (CreatableRelationProvider) source, save.options(), save.mode());
    }

    /** A stream into our sink: where delta-spark's JAR is, Spark has made its sink. */
    private LogicalPlan streamedByUs(WriteToStreamStatement stream) throws Throwable {
        Object theirs = stream.sink();
        if (Bridge.python == null || !isDeltaSparks(theirs)) {
            return stream;
        }
        Map options = ((CaseInsensitiveMap) part(part(theirs, "options"), "options")).originalMap();
        Object partitions = part(theirs, "partitionColumns");
        String mode = stream.outputMode().toString();
        Object ours = Bridge.python.streamSink(session, options, partitions, mode);
        return copied(stream, theirs, ours);
    }

    private static boolean isDeltaSparks(Object source) {
        return source.getClass().getName().startsWith("org.apache.spark.sql.delta.");
    }

    private static Object part(Object whole, String name) throws Throwable {
        return whole.getClass().getMethod(name, new Class[0]).invoke(whole, new Object[0]);
    }

    /** A node with a name that Spark can resolve in the place of `parts`. */
    private static LogicalPlan named(LogicalPlan node, Seq parts) {
        Seq made = Bridge.named(parts);
        return made == parts ? node : copied(node, parts, made);
    }

    /** A node with another of its parts. */
    private static LogicalPlan copied(LogicalPlan node, Object part, Object made) {
        Object[] arguments = new Object[node.productArity()];
        for (int i = 0; i < arguments.length; i++) {
            Object each = node.productElement(i);
            arguments[i] = each == part ? made : each;
        }
        return (LogicalPlan) node.makeCopy(arguments);
    }

    /** Whether Python must see a node, which it need not for a table of another format. */
    private boolean mayBeOurs(LogicalPlan plan) {
        if (plan instanceof UnresolvedDataSource) {
            return ((UnresolvedDataSource) plan).format().equalsIgnoreCase("delta");
        }
        if (plan instanceof UnresolvedRelation) {
            Seq parts = ((UnresolvedRelation) plan).multipartIdentifier();
            return ((String) parts.last()).indexOf('@') >= 0
                || (((UnresolvedRelation) plan).isStreaming()
                    || !((UnresolvedRelation) plan).options().isEmpty())
                && !Statements.isOthers(session, parts);
        }
        if (plan instanceof SaveAsV1TableCommand) {
            SaveAsV1TableCommand save = (SaveAsV1TableCommand) plan;
            return mayBeOurs(save.tableDesc(), save.mode());
        }
        if (plan instanceof org.apache.spark.sql.execution.datasources.CreateTable) {
            org.apache.spark.sql.execution.datasources.CreateTable creation =
                (org.apache.spark.sql.execution.datasources.CreateTable) plan;
            return mayBeOurs(creation.tableDesc(), creation.mode());
        }
        TableSpecBase made = madeBy(plan);
        if (made != null && made.provider().isDefined()) {
            return "delta".equalsIgnoreCase((String) made.provider().get());
        }
        LogicalPlan target = changedBy(plan);
        if (target instanceof SubqueryAlias) {
            target = ((SubqueryAlias) target).child();
        }
        return !(target instanceof UnresolvedRelation)
            || !Statements.isOthers(
                session, ((UnresolvedRelation) target).multipartIdentifier());
    }

    private boolean mayBeOurs(CatalogTable table, SaveMode mode) {
        boolean isOurs = table.provider().isDefined()
            && "delta".equalsIgnoreCase((String) table.provider().get());
        return isOurs
            || mode == SaveMode.Append
            && !Statements.isOthers(session, table.identifier().nameParts());
    }

    private static TableSpecBase madeBy(LogicalPlan plan) {
        return plan instanceof CreateTable ? ((CreateTable) plan).tableSpec()
            : plan instanceof CreateTableAsSelect ? ((CreateTableAsSelect) plan).tableSpec()
            : plan instanceof ReplaceTable ? ((ReplaceTable) plan).tableSpec()
            : plan instanceof ReplaceTableAsSelect ? ((ReplaceTableAsSelect) plan).tableSpec()
            : null;
    }

    private static LogicalPlan changedBy(LogicalPlan plan) {
        return plan instanceof InsertIntoStatement ? ((InsertIntoStatement) plan).table()
            : plan instanceof V2WriteCommand ? (LogicalPlan) ((V2WriteCommand) plan).table()
            : plan instanceof MergeIntoTable ? ((MergeIntoTable) plan).targetTable()
            : plan instanceof UpdateTable ? ((UpdateTable) plan).table()
            : plan instanceof DeleteFromTable ? ((DeleteFromTable) plan).table()
            : null;
    }
}

/** A command of Delta's: Python does it once, when Spark runs it. */
public final class DeltaCommand extends LogicalPlan implements RunnableCommand {
    private final String text;
    private final Callable work;
    private final Seq columns;
    private final Seq patterns;

    public DeltaCommand(String text, Callable work, Seq columns) {
        this.text = text;
        this.work = work;
        this.columns = columns;
        ArrayBuffer made = new ArrayBuffer();
        made.addOne(TreePattern.COMMAND());
        this.patterns = made.toSeq();
    }

    public Seq run(SparkSession session) {
        try {
            Object result = work.call();
            java.util.List rows = result == null
                ? new java.util.ArrayList() : ((Dataset) result).collectAsList();
            return CollectionConverters.asScala(rows).toSeq();
        } catch (Throwable error) {
            Platform.throwException(error);
            return null;
        }
    }

    public Seq output() {
        return columns;
    }

    public Seq children() {
        return (Seq) scala.collection.immutable.Nil$.MODULE$;
    }

    public TreeNode mapChildren(Function1 mapping) {
        return this;
    }

    public TreeNode withNewChildrenInternal(IndexedSeq children) {
        return this;
    }

    public Map metrics() {
        return scala.collection.immutable.Map$.MODULE$.empty();
    }

    public Seq nodePatterns() {
        return patterns;
    }

    public void org$apache$spark$sql$catalyst$plans$logical$Command$_setter_$nodePatterns_$eq(
        Seq given) {
    }

    public Statistics stats() {
        return org.apache.spark.sql.catalyst.plans.logical.Statistics$.MODULE$.DUMMY();
    }

    public AttributeSet producedAttributes() {
        return outputSet();
    }

    public String nodeName() {
        return "DeltaCommand";
    }

    public int productArity() {
        return 3;
    }

    public Object productElement(int n) {
        return n == 0 ? text : n == 1 ? (Object) work : columns;
    }

    public boolean canEqual(Object other) {
        return other instanceof DeltaCommand;
    }

    public boolean equals(Object other) {
        return this == other;
    }

    public int hashCode() {
        return System.identityHashCode(this);
    }

    public String simpleString(int maxFields) {
        return "DeltaCommand " + text;
    }
}

/** A table without capabilities: Spark writes to its source by `createRelation`. */
public final class NoTable implements Table {
    public String name() {
        return "delta";
    }

    public StructType schema() {
        return new StructType();
    }

    public Set capabilities() {
        return new HashSet();
    }
}

/** What `createRelation` returns after a write. */
public final class WrittenRelation extends BaseRelation {
    private final SQLContext context;
    private final StructType columns;

    public WrittenRelation(SQLContext context, StructType columns) {
        this.context = context;
        this.columns = columns;
    }

    public SQLContext sqlContext() {
        return context;
    }

    public StructType schema() {
        return columns;
    }
}

//PARSER
