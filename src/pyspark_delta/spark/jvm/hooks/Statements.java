package pyspark_delta;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.regex.Pattern;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.internal.SessionState;
import scala.Option;
import scala.collection.immutable.Seq;

/** The words of a statement, as Spark's lexer separates them, for as long as it is read. */
final class Words {
    private final String text;
    private int at = 0;

    Words(String text) {
        this.text = text;
    }

    int place() {
        return at;
    }

    void moveTo(int place) {
        at = place;
    }

    /** The next word, name in backquotes, or character; empty at the end. */
    String next() {
        skipBlanks();
        if (at >= text.length()) {
            return "";
        }
        int start = at;
        at++;
        if (text.charAt(start) == '`') {
            skipQuoted();
        } else if (isPart(text.charAt(start))) {
            while (at < text.length() && isPart(text.charAt(at))) {
                at++;
            }
        }
        return text.substring(start, at);
    }

    /** Goes behind the next word if it is this one. */
    boolean takes(String word) {
        int start = at;
        if (next().equalsIgnoreCase(word)) {
            return true;
        }
        at = start;
        return false;
    }

    /** Goes behind these words; one in brackets need not be there. */
    boolean takesAll(String[] words) {
        for (int i = 0; i < words.length; i++) {
            boolean isOptional = words[i].startsWith("[");
            String word = isOptional ? words[i].substring(1, words[i].length() - 1) : words[i];
            if (!takes(word) && !isOptional) {
                return false;
            }
        }
        return true;
    }

    /** The parts of a name; null where there is none, or where the statement computes it. */
    String[] name() {
        List parts = new ArrayList();
        while (true) {
            String word = next();
            boolean isQuoted = word.length() > 2 && word.startsWith("`") && word.endsWith("`");
            if (isQuoted) {
                parts.add(word.substring(1, word.length() - 1).replace("``", "`"));
            } else if (word.length() > 0 && isPart(word.charAt(0))) {
                parts.add(word);
            } else {
                return null;
            }
            if (takes("(") && word.equalsIgnoreCase("IDENTIFIER")) {
                return null;
            }
            if (!takes(".")) {
                return (String[]) parts.toArray(new String[parts.size()]);
            }
        }
    }

    private static boolean isPart(char character) {
        return Character.isLetterOrDigit(character) || character == '_';
    }

    private void skipBlanks() {
        while (at < text.length()) {
            if (text.startsWith("--", at)) {
                skipLine();
            } else if (text.startsWith("/*", at) && !text.startsWith("/*+", at)) {
                skipComment();
            } else if (Character.isWhitespace(text.charAt(at))
                || Character.isSpaceChar(text.charAt(at))) {
                at++;
            } else {
                return;
            }
        }
    }

    // A backslash at its end continues the comment in the next line.
    private void skipLine() {
        while (at < text.length() && text.charAt(at) != '\n' && text.charAt(at) != '\r') {
            at += text.startsWith("\\\n", at) ? 2 : 1;
        }
    }

    private void skipComment() {
        int depth = 0;
        while (at < text.length()) {
            boolean opens = text.startsWith("/*", at);
            boolean closes = text.startsWith("*/", at);
            depth += opens ? 1 : closes ? -1 : 0;
            at += opens || closes ? 2 : 1;
            if (depth == 0) {
                return;
            }
        }
    }

    private void skipQuoted() {
        while (at < text.length()) {
            if (text.startsWith("``", at)) {
                at += 2;
            } else if (text.charAt(at++) == '`') {
                return;
            }
        }
    }
}

/**
 * Which statements and tables cannot be Delta's, so that they cost no call of Python.
 *
 * Where in doubt, Python decides: names that are computed, views, tables that do not exist.
 */
public final class Statements {
    private static final Set FIRST_WORDS = new HashSet(Arrays.asList(new Object[] {
        "ALTER", "ANALYZE", "COMMENT", "CONVERT", "CREATE", "DELETE", "DESC", "DESCRIBE", "DROP",
        "EXPLAIN", "FROM", "GENERATE", "INSERT", "LOAD", "MERGE", "MSCK", "OPTIMIZE", "REORG",
        "REPLACE", "RESTORE", "SHOW", "TRUNCATE", "UPDATE", "VACUUM", "WITH"}));
    // Statements about one table, whose name follows these words.
    private static final String[] BEFORE_TABLES = {
        "ALTER TABLE",
        "ANALYZE TABLE",
        "COMMENT ON TABLE",
        "DELETE FROM",
        "DESC [TABLE] [EXTENDED] [FORMATTED]",
        "DESCRIBE [TABLE] [EXTENDED] [FORMATTED]",
        "DROP TABLE [IF] [EXISTS]",
        "INSERT [WITH] [SCHEMA] [EVOLUTION] INTO [TABLE]",
        "INSERT [WITH] [SCHEMA] [EVOLUTION] OVERWRITE [TABLE]",
        "MERGE [WITH] [SCHEMA] [EVOLUTION] INTO",
        "MSCK REPAIR TABLE",
        "SHOW COLUMNS [IN] [FROM]",
        "SHOW CREATE TABLE",
        "SHOW PARTITIONS",
        "SHOW TBLPROPERTIES",
        "TRUNCATE TABLE",
        "UPDATE"};
    // Words in the place of a name, after which it is another statement.
    private static final Set NO_NAMES = new HashSet(Arrays.asList(new Object[] {
        "DETAIL", "DIRECTORY", "HISTORY", "LOCAL"}));
    // First words whose other statements, as DROP VIEW, are Spark's.
    private static final Set ONLY_TABLES = new HashSet(Arrays.asList(new Object[] {
        "ALTER", "ANALYZE", "DROP", "MSCK", "SHOW", "TRUNCATE"}));
    private static final String[] MODES = {"EXTENDED", "CODEGEN", "COST", "FORMATTED", "LOGICAL"};
    private static final Pattern CHANGES =
        Pattern.compile("\\bchanges\\s+from\\b", Pattern.CASE_INSENSITIVE);
    private static final Pattern WRITES =
        Pattern.compile("\\b(?:insert|update|delete|merge)\\b", Pattern.CASE_INSENSITIVE);
    private static final Pattern CREATES_OURS =
        Pattern.compile("delta|\\b(?:like|clone)\\b", Pattern.CASE_INSENSITIVE);
    private static final String SESSION_CATALOG = "spark_catalog";
    private static final String SINGLE_PASS = "singlePassResolver";

    /** Whether Python must see a statement. */
    static boolean mayBeOurs(Object session, String sql) {
        Words words = new Words(sql);
        String first = firstWord(words);
        if (CHANGES.matcher(sql).find()) {
            return true;
        }
        if (!FIRST_WORDS.contains(first)) {
            return "SET".equals(first)
                && (sql.indexOf(SESSION_CATALOG) >= 0 || sql.indexOf(SINGLE_PASS) >= 0);
        }
        if ("EXPLAIN".equals(first)) {
            words.takes("EXPLAIN");
            for (int i = 0; i < MODES.length; i++) {
                words.takes(MODES[i]);
            }
            String explained = sql.substring(words.place());
            // EXPLAIN of an EXPLAIN is Spark's alone: a long row of them costs no stack here.
            return !"EXPLAIN".equals(firstWord(new Words(explained)))
                && mayBeOurs(session, explained);
        }
        if ("WITH".equals(first) || "FROM".equals(first)) {
            return WRITES.matcher(sql).find();
        }
        if ("CREATE".equals(first)) {
            return createsOurs(session, words, sql);
        }
        return changesOurs(session, words, first);
    }

    /** Whether a name is that of a table of the session catalog with another format. */
    static boolean isOthers(Object session, Seq parts) {
        String[] names = new String[parts.size()];
        for (int i = 0; i < names.length; i++) {
            names[i] = (String) parts.apply(i);
        }
        return isOthers(session, names);
    }

    static boolean isOthers(Object session, String[] parts) {
        int count = parts.length;
        String table = parts[count - 1];
        if (count > 3 || table.indexOf('/') >= 0) {
            return false;
        }
        try {
            SessionState state = ((SparkSession) session).sessionState();
            String catalog = count == 3
                ? parts[0] : state.catalogManager().currentCatalog().name();
            if (!SESSION_CATALOG.equalsIgnoreCase(catalog)) {
                return false;
            }
            TableIdentifier name =
                new TableIdentifier(table, Option.apply(count == 1 ? null : parts[count - 2]));
            if (state.catalog().isTempView(name)) {
                return false;
            }
            CatalogTable found = state.catalog().getTableMetadata(name);
            String kind = found.tableType().name();
            return found.provider().isDefined()
                && !"delta".equalsIgnoreCase((String) found.provider().get())
                && ("MANAGED".equals(kind) || "EXTERNAL".equals(kind));
        } catch (Throwable missing) {
            return false; // Python, or Spark after it, has the error
        }
    }

    private static String firstWord(Words words) {
        int start = words.place();
        String word = words.next();
        while ("(".equals(word)) {
            start = words.place();
            word = words.next();
        }
        words.moveTo(start);
        return word.toUpperCase(Locale.ROOT);
    }

    private static boolean createsOurs(Object session, Words words, String sql) {
        int start = words.place();
        if (words.takesAll(new String[] {"CREATE", "[OR]", "REPLACE"})) {
            return words.takes("TABLE");
        }
        words.moveTo(start);
        if (!words.takesAll(new String[] {"CREATE", "[EXTERNAL]", "TABLE"})) {
            return false;
        }
        String usual = ((SparkSession) session).sessionState().conf()
            .getConfString("spark.sql.sources.default", "");
        return "delta".equalsIgnoreCase(usual) || CREATES_OURS.matcher(sql).find();
    }

    private static boolean changesOurs(Object session, Words words, String first) {
        int start = words.place();
        for (int i = 0; i < BEFORE_TABLES.length; i++) {
            String[] before = BEFORE_TABLES[i].split(" ");
            if (!before[0].equals(first)) {
                continue;
            }
            words.moveTo(start);
            if (!words.takesAll(before)) {
                continue;
            }
            String[] name = words.name();
            if (name == null || NO_NAMES.contains(name[0].toUpperCase(Locale.ROOT))) {
                return true;
            }
            return isUnknownToSpark(words, first) || !isOthers(session, name);
        }
        return !ONLY_TABLES.contains(first);
    }

    /** Whether Spark's parser would take the words behind the name for an error, or as another name. */
    private static boolean isUnknownToSpark(Words words, String first) {
        if ("SHOW".equals(first)) {
            return words.takes("IN") || words.takes("FROM"); // SHOW COLUMNS IN a table IN a database
        }
        if (!"ALTER".equals(first)) {
            return false;
        }
        if (words.takes("DROP")) {
            return words.takes("FEATURE");
        }
        return words.takesAll(new String[] {"ALTER", "[COLUMN]"})
            && words.name() != null && words.takes("SYNC");
    }
}
