// The driver of PostgreSQL for Java: what DBeaver, Metabase and Tableau ask of the metadata, and rows with a fetch size.
//
//   java -cp postgresql.jar Postgres.java HTTP_URL KEY PORT

import java.sql.*;
import java.util.*;

public class Postgres {
    static void check(boolean is, String what) {
        if (!is) throw new AssertionError(what);
    }

    static List<String> column(ResultSet rows, String name) throws SQLException {
        List<String> found = new ArrayList<>();
        while (rows.next()) found.add(rows.getString(name));
        return found;
    }

    static int drain(ResultSet rows) throws SQLException {
        int count = 0;
        int columns = rows.getMetaData().getColumnCount();
        while (rows.next()) {
            for (int at = 1; at <= columns; at++) rows.getObject(at);
            count++;
        }
        return count;
    }

    public static void main(String[] arguments) throws Exception {
        String url = "jdbc:postgresql://127.0.0.1:" + arguments[2] + "/1";
        Properties properties = new Properties();
        properties.setProperty("user", "anyone");
        properties.setProperty("password", arguments[1]);
        for (String mode : List.of("extended", "simple", "extendedForPrepared")) {
            properties.setProperty("preferQueryMode", mode);
            try (Connection connection = DriverManager.getConnection(url, properties)) {
                metadata(connection);
                rows(connection);
            }
        }
        properties.setProperty("readOnly", "true");
        properties.setProperty("prepareThreshold", "1");
        properties.setProperty("binaryTransfer", "true");
        properties.remove("preferQueryMode");
        try (Connection connection = DriverManager.getConnection(url, properties)) {
            for (int at = 0; at < 5; at++) rows(connection);
        }
        System.out.println("ok");
    }

    static void metadata(Connection connection) throws SQLException {
        DatabaseMetaData about = connection.getMetaData();
        check(about.getDatabaseMajorVersion() == 15, "version " + about.getDatabaseProductVersion());
        check(column(about.getCatalogs(), "TABLE_CAT").equals(List.of("1")), "getCatalogs");
        check(column(about.getSchemas(), "TABLE_SCHEM").contains("public"), "getSchemas");
        drain(about.getSchemas(null, "pub%"));
        List<String> tables = column(about.getTables(null, "public", "%", new String[] {"TABLE", "VIEW"}), "TABLE_NAME");
        check(tables.contains("events") && tables.contains("persons"), "getTables " + tables);
        check(column(about.getTables("1", null, "event%", null), "TABLE_NAME").contains("events"), "getTables of a pattern");
        Map<String, Integer> types = new HashMap<>();
        try (ResultSet rows = about.getColumns(null, "public", "events", "%")) {
            int place = 0;
            while (rows.next()) {
                check(rows.getInt("ORDINAL_POSITION") == ++place, "the place of a column");
                types.put(rows.getString("COLUMN_NAME"), rows.getInt("DATA_TYPE"));
            }
        }
        check(types.get("uuid") == Types.VARCHAR, "uuid " + types.get("uuid"));
        check(types.get("timestamp") == Types.TIMESTAMP, "timestamp " + types.get("timestamp"));
        check(types.get("historical_migration") == Types.BIT, "historical_migration");
        check(column(about.getPrimaryKeys(null, "public", "groups"), "COLUMN_NAME").equals(List.of("group_type_index", "key")), "getPrimaryKeys");
        check(column(about.getIndexInfo(null, "public", "events", true, false), "COLUMN_NAME").equals(List.of("uuid")), "getIndexInfo");
        check(drain(about.getImportedKeys(null, "public", "events")) == 0, "getImportedKeys");
        check(drain(about.getExportedKeys(null, "public", "events")) == 0, "getExportedKeys");
        check(drain(about.getCrossReference(null, "public", "events", null, "public", "persons")) == 0, "getCrossReference");
        check(drain(about.getTableTypes()) > 0, "getTableTypes");
        check(drain(about.getTypeInfo()) > 10, "getTypeInfo");
        drain(about.getBestRowIdentifier(null, "public", "events", DatabaseMetaData.bestRowSession, false));
        drain(about.getVersionColumns(null, "public", "events"));
        drain(about.getProcedures(null, null, "%"));
        drain(about.getProcedureColumns(null, null, "%", "%"));
        drain(about.getFunctions(null, null, "%"));
        drain(about.getFunctionColumns(null, null, "%", "%"));
        drain(about.getTablePrivileges(null, "public", "%"));
        drain(about.getColumnPrivileges(null, "public", "events", "%"));
        drain(about.getUDTs(null, null, "%", null));
        drain(about.getClientInfoProperties());
        about.getSQLKeywords();
        about.getMaxColumnNameLength();
        about.getUserName();
    }

    static void rows(Connection connection) throws SQLException {
        connection.setAutoCommit(false);
        List<String> all = new ArrayList<>();
        try (Statement statement = connection.createStatement()) {
            try (ResultSet rows = statement.executeQuery("SELECT uuid, timestamp, properties, historical_migration FROM events ORDER BY uuid")) {
                while (rows.next()) {
                    all.add(rows.getString(1));
                    check(rows.getTimestamp(2) != null, "timestamp");
                    check(rows.getString(3).startsWith("{"), "properties");
                    rows.getBoolean(4);
                }
                ResultSetMetaData about = rows.getMetaData();
                check(about.getColumnTypeName(3).equals("json"), about.getColumnTypeName(3));
            }
            statement.setFetchSize(7);
            check(column(statement.executeQuery("SELECT uuid FROM events ORDER BY uuid"), "uuid").equals(all), "rows with a fetch size");
        }
        connection.commit();
        try (PreparedStatement statement = connection.prepareStatement("SELECT ?::int + 1, ?::text, ?::float8, ?::timestamptz, ?::boolean, ?::numeric, count(*) FROM events WHERE distinct_id = ? AND timestamp > ?")) {
            Timestamp day = Timestamp.from(java.time.Instant.parse("2026-03-01T12:00:00Z"));
            statement.setInt(1, 41);
            statement.setString(2, "it's");
            statement.setDouble(3, 0.5);
            statement.setTimestamp(4, day);
            statement.setBoolean(5, true);
            statement.setBigDecimal(6, new java.math.BigDecimal("1.25"));
            statement.setString(7, "u1");
            statement.setTimestamp(8, day);
            check(statement.getParameterMetaData().getParameterCount() == 8, "parameters");
            try (ResultSet rows = statement.executeQuery()) {
                check(rows.next(), "a row");
                check(rows.getInt(1) == 42 && rows.getString(2).equals("it's") && rows.getDouble(3) == 0.5, "values");
                check(rows.getTimestamp(4).equals(day) && rows.getBoolean(5), "values");
                check(rows.getBigDecimal(6).compareTo(new java.math.BigDecimal("1.25")) == 0, "a decimal");
                check(rows.getLong(7) > 0, "a count");
            }
        }
        try (Statement statement = connection.createStatement()) {
            statement.executeUpdate("DELETE FROM events");
            throw new AssertionError("a statement that writes is answered");
        } catch (SQLException error) {
            check(error.getSQLState().equals("25006"), error.getSQLState());
            connection.rollback();
        }
        connection.setAutoCommit(true);
    }
}
