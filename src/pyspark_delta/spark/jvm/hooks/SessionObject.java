package pyspark_delta;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import scala.Product;

/**
 * An interface of Spark's that Python implements for one session.
 *
 * The session holds this object, and no Python object: Python would hold the session in turn, and
 * neither could ever be freed.  Python finds what it needs by the session, and can do so anew.
 */
public final class SessionObject implements InvocationHandler {
    // A table that Spark's cache does not have, Python may.
    private static final String COMPLETED = "getIfPresent";

    private final Object session;
    private final String kind;
    private final Object sparks;

    private SessionObject(Object session, String kind, Object sparks) {
        this.session = session;
        this.kind = kind;
        this.sparks = sparks;
    }

    /** `sparks` is the object in whose place this one is, or null. */
    public static Object of(Class type, Object session, String kind, Object sparks) {
        return Proxy.newProxyInstance(
            type.getClassLoader(),
            new Class[] {type},
            new SessionObject(session, kind, sparks));
    }

    /** The object behind a proxy of ours; null for all others. */
    public static SessionObject behind(Object object) {
        if (object == null || !Proxy.isProxyClass(object.getClass())) {
            return null;
        }
        InvocationHandler handler = Proxy.getInvocationHandler(object);
        return handler instanceof SessionObject ? (SessionObject) handler : null;
    }

    public Object sparks() {
        return sparks;
    }

    public Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
        String name = method.getName();
        if (method.getDeclaringClass() == Object.class) {
            return name.equals("equals") ? (Object) Boolean.valueOf(proxy == arguments[0])
                : name.equals("hashCode") ? (Object) Integer.valueOf(hashCode())
                : "Delta[" + kind + "]";
        }
        if (sparks != null) {
            Object found = ofSparks(method, arguments);
            if (found != null || !name.equals(COMPLETED)) {
                return found;
            }
            if (isOthers((Product) arguments[0])) {
                return null;
            }
        }
        int count = arguments == null ? 0 : arguments.length;
        return Bridge.python.invoked(
            session, kind, name, count > 0 ? arguments[0] : null, count > 1 ? arguments[1] : null);
    }

    // The key of a table: its catalog, database and name.
    private boolean isOthers(Product key) {
        return "spark_catalog".equals(key.productElement(0))
            && Statements.isOthers(session, new String[] {
                "spark_catalog", (String) key.productElement(1), (String) key.productElement(2)});
    }

    private Object ofSparks(Method method, Object[] arguments) throws Throwable {
        try {
            return method.invoke(sparks, arguments);
        } catch (InvocationTargetException error) {
            throw error.getCause();
        }
    }
}
