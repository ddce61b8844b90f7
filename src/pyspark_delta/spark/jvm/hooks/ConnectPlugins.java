package pyspark_delta;

import java.util.Optional;
import org.apache.spark.sql.connect.planner.SparkConnectPlanner;
import org.apache.spark.sql.connect.plugin.CommandPlugin;
import org.apache.spark.sql.connect.plugin.RelationPlugin;
import org.apache.spark.sql.connect.service.SessionHolderInfo;
import org.apache.spark.sql.connect.service.SparkConnectService$;
import org.apache.spark.unsafe.Platform;

/** Relations of Delta's protocol for Spark Connect. */
public final class ConnectRelations implements RelationPlugin {
    public Optional transform(byte[] message, SparkConnectPlanner planner) {
        try {
            return Optional.ofNullable(
                Bridge.python.relation(planner.session(), planner, message));
        } catch (Throwable error) {
            Platform.throwException(error);
            return null;
        }
    }
}

/** Commands of Delta's protocol for Spark Connect. */
public final class ConnectCommands implements CommandPlugin {
    public boolean process(byte[] message, SparkConnectPlanner planner) {
        try {
            return Bridge.python.command(planner.session(), planner, message);
        } catch (Throwable error) {
            Platform.throwException(error);
            return false;
        }
    }
}

/** Which sessions Spark Connect has; it tells nobody when one is closed. */
public final class ConnectSessions {
    /** The ids that the server gave them, each on a line. */
    public static String open() {
        if (!SparkConnectService$.MODULE$.started()) {
            return "";
        }
        StringBuilder ids = new StringBuilder();
        scala.collection.Iterator each =
            SparkConnectService$.MODULE$.sessionManager().listActiveSessions().iterator();
        while (each.hasNext()) {
            ids.append(((SessionHolderInfo) each.next()).serverSessionId()).append("\n");
        }
        return ids.toString();
    }
}
