package pyspark_delta;

import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkContext$;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.FileSourceMetadataAttribute$;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.expressions.PlanExpression;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Subquery;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.catalyst.trees.TreePattern;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.collection.mutable.ArrayBuffer;
import scala.runtime.AbstractFunction1;

/**
 * The optimizer's rule for scans of Delta tables.
 *
 * A scan that follows its table gets the version that the query reads: one for all scans of the
 * table in the query, in subqueries too.  Aggregates that the log can answer are answered from it.
 * Python decides both; a query without such a scan costs no call of Python.
 */
public final class DeltaScans extends Rule {
    private static final String ROW_INDEX = "row_index";
    private static final String COMMAND = "pyspark_delta.command";

    private final Expression isLive;
    private final AttributeReference bits;
    private volatile Function versions;
    private volatile Function answers;

    /** Whether a row `isLive` is told by `bits` and the row index of a metadata column. */
    public DeltaScans(Expression isLive, AttributeReference bits) {
        this.isLive = isLive;
        this.bits = bits;
    }

    /**
     * @param versions from the command that the thread runs and the names of indexes, each on a
     *     line, to a list of the indexes to read
     * @param answers from an aggregate to the plan in its place, or null
     */
    public void decideBy(Function versions, Function answers) {
        this.versions = versions;
        this.answers = answers;
    }

    /** An index of Spark's whose files Python lists; all else that Spark asks is known here. */
    public DeltaFileIndex index(
        FileIndex python,
        String name,
        String identity,
        boolean followsTable,
        boolean hasVectors,
        Seq rootPaths,
        StructType partitionSchema) {
        return new DeltaFileIndex(
            python, name, identity, followsTable, hasVectors, rootPaths, partitionSchema);
    }

    public TreeNode apply(TreeNode tree) {
        LogicalPlan plan = (LogicalPlan) tree;
        // A subquery is optimized by itself first, and then again as a part of its query, where
        // all scans of a table are in sight.
        if (plan instanceof Subquery) {
            return plan;
        }
        LinkedHashMap found = new LinkedHashMap();
        collect(plan, found);
        if (found.isEmpty()) {
            return plan;
        }
        LogicalPlan versioned = plan;
        if (hasFollowing(found)) {
            versioned = mapped(plan, new Versions(chosen(found)));
        }
        return mapped(versioned, new Answers());
    }

    // Which scans there are.

    private static void collect(LogicalPlan plan, Map found) {
        DeltaFileIndex index = indexOf(plan);
        if (index != null) {
            found.put(index.name, index);
        }
        scala.collection.Iterator children = plan.children().iterator();
        while (children.hasNext()) {
            collect((LogicalPlan) children.next(), found);
        }
        scala.collection.Iterator subqueries = plan.subqueries().iterator();
        while (subqueries.hasNext()) {
            collect((LogicalPlan) subqueries.next(), found);
        }
    }

    private static boolean hasFollowing(Map found) {
        Iterator each = found.values().iterator();
        while (each.hasNext()) {
            if (((DeltaFileIndex) each.next()).followsTable) {
                return true;
            }
        }
        return false;
    }

    private Map chosen(Map found) {
        StringBuilder names = new StringBuilder(command());
        LinkedHashMap chosen = new LinkedHashMap();
        Iterator each = found.values().iterator();
        while (each.hasNext()) {
            DeltaFileIndex index = (DeltaFileIndex) each.next();
            if (index.followsTable) {
                names.append("\n").append(index.name);
                chosen.put(index.name, null);
            }
        }
        Iterator indexes = ((List) versions.apply(names.toString())).iterator();
        Iterator keys = new java.util.ArrayList(chosen.keySet()).iterator();
        while (keys.hasNext()) {
            chosen.put(keys.next(), indexes.next());
        }
        return chosen;
    }

    private static String command() {
        Option context = SparkContext$.MODULE$.getActive();
        Object command = context.isDefined()
            ? ((SparkContext) context.get()).getLocalProperty(COMMAND) : null;
        return command == null ? "" : (String) command;
    }

    private static DeltaFileIndex indexOf(LogicalPlan plan) {
        if (!(plan instanceof LogicalRelation)) {
            return null;
        }
        Object relation = ((LogicalRelation) plan).relation();
        if (!(relation instanceof HadoopFsRelation)) {
            return null;
        }
        FileIndex location = ((HadoopFsRelation) relation).location();
        return location instanceof DeltaFileIndex ? (DeltaFileIndex) location : null;
    }

    // Plans with other parts, in subqueries too.

    /** What becomes of a part of a plan; null to leave it and go on below. */
    private interface Step {
        LogicalPlan replaced(LogicalPlan part);
    }

    private static LogicalPlan mapped(LogicalPlan plan, final Step step) {
        LogicalPlan replaced = step.replaced(plan);
        if (replaced != null) {
            return replaced;
        }
        LogicalPlan made = (LogicalPlan) withMappedChildren(plan, step);
        if (!made.containsPattern(TreePattern.PLAN_EXPRESSION())) {
            return made;
        }
        return (LogicalPlan) made.mapExpressions(new AbstractFunction1() {
            public Object apply(Object expression) {
                return mapped((Expression) expression, step);
            }
        });
    }

    private static TreeNode withMappedChildren(TreeNode node, Step step) {
        boolean isChanged = false;
        ArrayBuffer children = new ArrayBuffer();
        scala.collection.Iterator each = node.children().iterator();
        while (each.hasNext()) {
            Object child = each.next();
            Object made = child instanceof LogicalPlan
                ? (Object) mapped((LogicalPlan) child, step) : mapped((Expression) child, step);
            isChanged = isChanged || made != child;
            children.addOne(made);
        }
        return isChanged ? node.withNewChildren(children.toSeq()) : node;
    }

    private static Expression mapped(Expression expression, Step step) {
        if (!expression.containsPattern(TreePattern.PLAN_EXPRESSION())) {
            return expression;
        }
        Expression made = (Expression) withMappedChildren(expression, step);
        Object plan = made instanceof PlanExpression ? ((PlanExpression) made).plan() : null;
        if (!(plan instanceof LogicalPlan)) {
            return made;
        }
        LogicalPlan query = mapped((LogicalPlan) plan, step);
        return query == plan ? made : ((PlanExpression) made).withNewPlan(query);
    }

    // One version for each table.

    private final class Versions implements Step {
        private final Map chosen;

        Versions(Map chosen) {
            this.chosen = chosen;
        }

        public LogicalPlan replaced(LogicalPlan part) {
            DeltaFileIndex index = indexOf(part);
            return index != null && index.followsTable
                ? atVersion((LogicalRelation) part, (DeltaFileIndex) chosen.get(index.name))
                : null;
        }
    }

    private LogicalPlan atVersion(LogicalRelation scan, DeltaFileIndex index) {
        HadoopFsRelation old = (HadoopFsRelation) scan.relation();
        HadoopFsRelation relation = old.copy(
            index,
            index.partitionSchema(),
            old.dataSchema(),
            old.bucketSpec(),
            old.fileFormat(),
            old.options(),
            old.sparkSession());
        if (!index.hasVectors) {
            return copied(scan, relation, scan.output());
        }
        AttributeReference vector = new AttributeReference(
            bits.name(), bits.dataType(), true, bits.metadata(),
            NamedExpression$.MODULE$.newExprId(), bits.qualifier());
        AttributeReference metadata = null;
        ArrayBuffer output = new ArrayBuffer();
        scala.collection.Iterator each = scan.output().iterator();
        while (each.hasNext()) {
            AttributeReference attribute = (AttributeReference) each.next();
            if (FileSourceMetadataAttribute$.MODULE$.unapply(attribute).isDefined()) {
                metadata = withRowIndex(scan, attribute, (StructType) attribute.dataType());
                attribute = metadata;
            }
            output.addOne(attribute);
        }
        Seq columns = output.toSeq();
        if (metadata == null) {
            AttributeReference whole = (AttributeReference) scan.metadataOutput().head();
            metadata = withRowIndex(scan, whole, new StructType());
            output.addOne(metadata);
        }
        output.addOne(vector);
        LogicalPlan rows = copied(scan, relation, output.toSeq());
        return new Project(columns, new Filter(isLive(isLive, vector, metadata), rows));
    }

    private static LogicalPlan copied(LogicalRelation scan, HadoopFsRelation relation, Seq output) {
        Object[] arguments = new Object[scan.productArity()];
        for (int i = 0; i < arguments.length; i++) {
            arguments[i] = scan.productElement(i);
        }
        arguments[0] = relation;
        arguments[1] = output;
        return (LogicalPlan) scan.makeCopy(arguments);
    }

    // Only the fields that a query needs are made for each row, so the row index joins those.
    private static AttributeReference withRowIndex(
        LogicalRelation scan, AttributeReference metadata, StructType fields) {
        if (fields.getFieldIndex(ROW_INDEX).isDefined()) {
            return metadata;
        }
        StructType all = (StructType) ((HadoopFsRelation) scan.relation())
            .fileFormat().createFileMetadataCol().dataType();
        return (AttributeReference) metadata.withDataType(fields.add(all.apply(ROW_INDEX)));
    }

    private Expression isLive(
        Expression condition, AttributeReference vector, AttributeReference metadata) {
        if (condition instanceof GetStructField) {
            Object ordinal = ((StructType) metadata.dataType()).getFieldIndex(ROW_INDEX).get();
            return new GetStructField(
                metadata, ((Integer) ordinal).intValue(), Option.apply(ROW_INDEX));
        }
        if (condition instanceof AttributeReference) {
            return vector;
        }
        ArrayBuffer children = new ArrayBuffer();
        scala.collection.Iterator each = condition.children().iterator();
        while (each.hasNext()) {
            children.addOne(isLive((Expression) each.next(), vector, metadata));
        }
        return (Expression) condition.withNewChildren(children.toSeq());
    }

    // Aggregates that the log answers.

    private final class Answers implements Step {
        public LogicalPlan replaced(LogicalPlan part) {
            return part instanceof Aggregate && isOverScan((Aggregate) part)
                ? (LogicalPlan) answers.apply(part)
                : null;
        }
    }

    // An aggregate without groups, directly over the rows of a scan of ours: between them only
    // filters, and projections that leave columns out or name them anew.
    private static boolean isOverScan(Aggregate aggregate) {
        if (aggregate.groupingExpressions().nonEmpty() || aggregate.isStreaming()) {
            return false;
        }
        LogicalPlan below = aggregate.child();
        while (below instanceof Filter || isOfColumns(below)) {
            below = (LogicalPlan) below.children().head();
        }
        return indexOf(below) != null;
    }

    private static boolean isOfColumns(LogicalPlan plan) {
        if (!(plan instanceof Project)) {
            return false;
        }
        scala.collection.Iterator each = ((Project) plan).projectList().iterator();
        while (each.hasNext()) {
            Object column = each.next();
            if (column instanceof Alias) {
                column = ((Alias) column).child();
            }
            if (!(column instanceof AttributeReference)) {
                return false;
            }
        }
        return true;
    }

    /** The files of a Delta table, for a scan of Spark's. */
    public static final class DeltaFileIndex implements FileIndex {
        public final String name;
        public final boolean followsTable;
        public final boolean hasVectors;
        private final FileIndex python;
        private final String identity;
        private final Seq rootPaths;
        private final StructType partitionSchema;
        private long size = -1L;

        DeltaFileIndex(
            FileIndex python,
            String name,
            String identity,
            boolean followsTable,
            boolean hasVectors,
            Seq rootPaths,
            StructType partitionSchema) {
            this.python = python;
            this.name = name;
            this.identity = identity;
            this.followsTable = followsTable;
            this.hasVectors = hasVectors;
            this.rootPaths = rootPaths;
            this.partitionSchema = partitionSchema;
        }

        public Seq rootPaths() {
            return rootPaths;
        }

        public Seq listFiles(Seq partitionFilters, Seq dataFilters) {
            return python.listFiles(partitionFilters, dataFilters);
        }

        public String[] inputFiles() {
            return python.inputFiles();
        }

        public void refresh() {
        }

        // Where the table is followed this is a guess: the scan of the version has the number.
        public synchronized long sizeInBytes() {
            if (size < 0) {
                size = python.sizeInBytes();
            }
            return size;
        }

        public StructType partitionSchema() {
            return partitionSchema;
        }

        public Option metadataOpsTimeNs() {
            return Option.empty();
        }

        public boolean isTimeTravel() {
            return false;
        }

        public boolean equals(Object other) {
            return other instanceof DeltaFileIndex
                && identity.equals(((DeltaFileIndex) other).identity);
        }

        public int hashCode() {
            return identity.hashCode();
        }

        public String toString() {
            return name;
        }
    }
}
