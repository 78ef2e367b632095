// Writes the fixtures of this folder with the reference encoder of Fressian, so that our decoder is checked against
// bytes that it had no part in. A developer's tool, not run by cargo; fetch org.fressian:fressian:0.6.8 (Maven Central):
//
//   javac -cp fressian-0.6.8.jar Fixtures.java && java -cp fressian-0.6.8.jar:. Fixtures
//   java -cp fressian-0.6.8.jar:. Fixtures large.jepsen 1000000      for measures
//
// The block layout is that of jepsen.store.format, tags and caching those of data.fressian and jepsen.

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.*;
import java.util.regex.Pattern;
import java.util.zip.CRC32;
import org.fressian.FressianWriter;
import org.fressian.Writer;
import org.fressian.handlers.WriteHandler;

public class Fixtures {
    // --- values that Java lacks

    record Named(String tag, String namespace, String name) {}

    record Op(long index, long time, Named type, Object process, Named f, Object value, Map<?, ?> extra) {}

    /** Any tag with any components. */
    record Tagged(String tag, Object... components) {}

    static Named key(String name) { return new Named("key", null, name); }

    static Map<Object, Object> map(Object... pairs) {
        var map = new LinkedHashMap<Object, Object>();
        for (int i = 0; i < pairs.length; i += 2) map.put(pairs[i], pairs[i + 1]);
        return map;
    }

    static List<Object> list(Object... items) { return Arrays.asList(items); }

    // --- writing

    static FressianWriter writer(ByteArrayOutputStream out) {
        WriteHandler named = (Writer w, Object o) -> {
            var it = (Named) o;
            w.writeTag(it.tag(), 2);
            w.writeObject(it.namespace(), true);
            w.writeObject(it.name(), true);
        };
        WriteHandler op = (Writer w, Object o) -> {
            var it = (Op) o;
            w.writeTag("jepsen.history.Op", 7);
            w.writeInt(it.index());
            w.writeInt(it.time());
            w.writeObject(it.type(), true);
            w.writeObject(it.process());
            w.writeObject(it.f(), true);
            w.writeObject(it.value());
            w.writeObject(it.extra());
        };
        WriteHandler tagged = (Writer w, Object o) -> {
            var it = (Tagged) o;
            w.writeTag(it.tag(), it.components().length);
            for (var component : it.components()) w.writeObject(component);
        };
        // Keys are cached, as data.fressian does.
        WriteHandler maps = (Writer w, Object o) -> {
            w.writeTag("map", 1);
            ((FressianWriter) w).beginClosedList();
            for (var entry : ((Map<?, ?>) o).entrySet()) {
                w.writeObject(entry.getKey(), true);
                w.writeObject(entry.getValue());
            }
            ((FressianWriter) w).endList();
        };
        Map<Class<?>, Map<String, WriteHandler>> own = new HashMap<>();
        own.put(Named.class, Map.of("named", named));
        own.put(Op.class, Map.of("op", op));
        own.put(Tagged.class, Map.of("tagged", tagged));
        own.put(LinkedHashMap.class, Map.of("map", maps));
        return new FressianWriter(out, type -> own.get(type));
    }

    static byte[] fressian(Object... values) throws IOException {
        var out = new ByteArrayOutputStream();
        var writer = writer(out);
        for (var value : values) writer.writeObject(value);
        return out.toByteArray();
    }

    /** A Jepsen file as its store writes it: blocks behind one another, a new index after each change. */
    static class Store {
        final ByteArrayOutputStream file = new ByteArrayOutputStream();
        final Map<Integer, Long> blocks = new HashMap<>();
        long index = 0;
        int next = 1;
        int root = 0;
        final int version;

        Store(int version) throws IOException {
            this.version = version;
            file.write(new byte[18]);
        }

        int id() { return next++; }

        long block(int type, byte[] data) throws IOException {
            long offset = file.size();
            var header = new ByteArrayOutputStream();
            var out = new DataOutputStream(header);
            out.writeLong(28 + data.length);
            out.writeInt(0);
            out.writeShort(type);
            out.write(new byte[14]);
            var crc = new CRC32();
            crc.update(data);
            crc.update(header.toByteArray());
            var bytes = header.toByteArray();
            for (int i = 0; i < 4; i++) bytes[8 + i] = (byte) (crc.getValue() >> (24 - 8 * i));
            file.write(bytes);
            file.write(data);
            return offset;
        }

        void put(int id, int type, byte[] data) throws IOException { blocks.put(id, block(type, data)); }

        void index() throws IOException {
            blocks.put(id(), (long) file.size());
            var data = new ByteArrayOutputStream();
            var out = new DataOutputStream(data);
            out.writeInt(root);
            for (var entry : blocks.entrySet()) {
                out.writeInt(entry.getKey());
                out.writeLong(entry.getValue());
            }
            index = block(1, data.toByteArray());
        }

        void partial(int id, int rest, Object map) throws IOException {
            var data = new ByteArrayOutputStream();
            new DataOutputStream(data).writeInt(rest);
            data.write(fressian(map));
            put(id, 3, data.toByteArray());
        }

        void vector(int id, long count, List<long[]> parts) throws IOException {
            var data = new ByteArrayOutputStream();
            var out = new DataOutputStream(data);
            out.writeLong(count);
            for (var part : parts) {
                out.writeLong(part[0]);
                out.writeInt((int) part[1]);
            }
            put(id, 5, data.toByteArray());
        }

        void save(String name) throws IOException {
            var bytes = file.toByteArray();
            var header = new ByteArrayOutputStream();
            var out = new DataOutputStream(header);
            out.writeBytes("JEPSEN");
            out.writeInt(version);
            out.writeLong(index);
            System.arraycopy(header.toByteArray(), 0, bytes, 0, 18);
            Files.write(Path.of(name), bytes);
        }
    }

    static Tagged reference(int id) { return new Tagged("block-ref", id); }

    static List<Object> operations() {
        var none = map();
        var kill = map("n1", key("killed"), "n2", key("killed"));
        var error = map(key("error"), list(key("timeout"), "no answer"), key("node"), "n1");
        Object append = list(key("append"), 3, 1), read = list(key("r"), 3, null);
        Object saw = list(key("r"), 3, list(1, 2, 300, 70000)), nothing = list(key("r"), 4, list());
        return list(
            new Op(0, 4710, key("invoke"), 0, key("txn"), list(append, read), none),
            new Op(1, 5_000_000, key("info"), key("nemesis"), key("kill"), null, none),
            new Op(2, 5_000_001, key("invoke"), 1, key("txn"), list(list(key("w"), "k", -7)), none),
            new Op(3, 6_123_456_789L, key("ok"), 0, key("txn"), list(append, saw, nothing), none),
            new Op(4, 6_200_000_000L, key("info"), key("nemesis"), key("kill"), kill, none),
            new Op(5, 6_200_000_001L, key("info"), 1, key("txn"), list(list(key("w"), "k", -7)), error),
            new Op(6, 6_300_000_000L, key("invoke"), 2, key("cas"), list(1, 2), none),
            new Op(7, 6_400_000_000L, key("fail"), 2, key("cas"), list(1, 2),
                map(key("error"), key("not-found"))));
    }

    /** The same as plain maps without indices, as in version 0. */
    static Map<Object, Object> plain(Op op) {
        var map = map(key("type"), op.type(), key("f"), op.f(), key("value"), op.value(),
            key("process"), op.process(), key("time"), op.time());
        map.putAll(op.extra());
        return map;
    }

    static void file(String name, int version) throws IOException {
        var store = new Store(version);
        int history = store.id(), test = store.id();
        var attributes = map(key("name"), "demo", key("concurrency"), 3, key("nodes"), list("n1", "n2"),
            key("start-time"), new Tagged("date-time", "20261121T091403.000Z"), key("history"), reference(history));
        store.put(history, 2, fressian((Object) null));
        store.root = test;
        store.put(test, 2, fressian(attributes));
        store.index();
        var ops = operations();
        var parts = new ArrayList<long[]>();
        for (int first = 0; first < ops.size(); first += 3) {
            var some = ops.subList(first, Math.min(first + 3, ops.size()));
            int id = store.id();
            if (version == 1) {
                store.put(id, 4, fressian(some.toArray()));
            } else {
                store.put(id, 2, fressian(some.stream().map(op -> plain((Op) op)).toList()));
            }
            parts.add(new long[] {first, id});
            store.vector(history, first + some.size(), parts);
            store.index();
        }
        store.put(test, 2, fressian(attributes));
        int rest = store.id(), results = store.id();
        store.partial(rest, 0, map(key("stats"), map(key("valid?"), true, key("count"), 4),
            key("anomaly-types"), list(key("G1c"))));
        store.partial(results, rest, map(key("valid?"), false));
        attributes.put(key("results"), reference(results));
        store.put(test, 2, fressian(attributes));
        store.index();
        store.save(name);
    }

    /** Values of every kind, one after another with one cache. */
    static byte[] values() throws IOException {
        var out = new ByteArrayOutputStream();
        var w = writer(out);
        for (long edge : new long[] {0, 1, 63, 64, 4095, 4096, (1 << 19) - 1, 1 << 19, (1 << 25) - 1, 1 << 25,
                (1L << 33) - 1, 1L << 33, (1L << 41) - 1, 1L << 41, (1L << 49) - 1, 1L << 49, Long.MAX_VALUE}) {
            w.writeObject(list(edge, -edge, -edge - 1));
        }
        w.writeObject(list(true, false, null, 0.0, 1.0, -2.5, 0.1f, Double.NaN, Double.NEGATIVE_INFINITY));
        w.writeObject(list("", "seven!!", "eight!!!", "\u00e9\u4e2d", "a\u0000b", "\ud83d\ude00 pair", "\ud800 lone"));
        var longText = "0123456789\ud83d\ude00".repeat(12_000);
        w.writeObject(longText);
        w.writeObject(longText.hashCode());
        w.writeObject(list(new byte[] {}, new byte[] {1, -2, 3}, new byte[9], new byte[100_000].length));
        w.writeBytes(new byte[70_000]);
        w.writeObject(list(1, 2, 3, 4, 5, 6, 7));
        w.writeObject(list(1, 2, 3, 4, 5, 6, 7, 8));
        w.beginClosedList(); w.writeInt(1); w.writeString("x"); w.endList();
        w.writeObject(new long[] {1, 1 << 20, -1});
        w.writeObject(new int[] {7});
        w.writeObject(new double[] {0.5, 0});
        w.writeObject(new float[] {1.5f});
        w.writeObject(new boolean[] {true, false});
        w.writeObject(new Object[] {"a", 1});
        w.writeObject(map("a", 1, list(1, 2), map()));
        w.writeObject(new TreeSet<>(List.of(3, 1, 2)));
        w.writeObject(UUID.fromString("00112233-4455-6677-8899-aabbccddeeff"));
        w.writeObject(Pattern.compile("a+b"));
        w.writeObject(URI.create("http://example.org/x"));
        w.writeObject(list(BigInteger.ONE.shiftLeft(70), BigInteger.ONE.shiftLeft(64).negate(), BigInteger.TEN));
        w.writeObject(list(new BigDecimal("-12.75"), new BigDecimal("3e10")));
        w.writeObject(list(new Date(0), new Date(1_795_252_443_123L), new Date(-1), new Date(951_782_400_000L)));
        w.writeObject(list(key("word"), new Named("key", "space", "word"), new Named("sym", null, "symbol")));
        w.writeObject(list(new Tagged("char", 0x4e2d), new Tagged("ratio", 1, 3)));
        w.writeObject(new Tagged("persistent-hash-set", list(2, "b")));
        w.writeObject(new Tagged("persistent-sorted-set", list()));
        w.writeObject(new Tagged("map-entry", key("k"), 1));
        w.writeObject(new Tagged("multiset", map(key("a"), 2)));
        w.writeObject(new Tagged("throwable", map(key("cause"), "oh")));
        w.writeObject(list(new Tagged("atom", 5), new Tagged("instant", "2026-11-21T09:14:03Z"), new Tagged("byte", 7)));
        w.writeObject(new Tagged("record", new Named("sym", "a", "B"), map(key("x"), 1)));
        w.writeObject(new Tagged("vec", list(1, "v")));
        w.writeObject(new Tagged("unheard-of", 1, "two", list(3)));
        w.writeObject(operations().get(5));
        // Twenty more structures, so that some have no short code, and strings named again.
        for (int round = 0; round < 2; round++) {
            var all = new ArrayList<Object>();
            for (int i = 0; i < 20; i++) all.add(new Tagged("kind-" + i, i));
            w.writeObject(all);
            for (int i = 0; i < 40; i++) w.writeObject("cached " + i, true);
        }
        w.resetCaches();
        w.writeObject(list(key("word"), key("word")));
        w.writeFooter();
        w.writeObject(list(key("word"), key("word")));
        return out.toByteArray();
    }

    /** For measures: transactions over ten keys, reads of growing lists, chunks as long as Jepsen's. */
    static void large(String name, int count) throws IOException {
        var store = new Store(1);
        int history = store.id(), test = store.id();
        store.root = test;
        store.put(test, 2, fressian(map(key("name"), "large", key("history"), reference(history))));
        var random = new Random(1);
        var parts = new ArrayList<long[]>();
        var lists = new ArrayList<List<Object>>();
        for (int i = 0; i < 10; i++) lists.add(new ArrayList<>());
        var none = map();
        for (int first = 0; first < count; first += 16_384) {
            var ops = new ArrayList<Object>();
            for (int i = first; i < Math.min(count, first + 16_384); i += 2) {
                int k = random.nextInt(10);
                var list = lists.get(k);
                if (list.size() > 30) list.clear();
                Object read = list(key("r"), k, null);
                Object append = list(key("append"), k, list.size());
                list.add(list.size());
                Object saw = list(key("r"), k, new ArrayList<>(list));
                ops.add(new Op(i, i * 1000L, key("invoke"), i / 2 % 50, key("txn"), list(append, read), none));
                ops.add(new Op(i + 1, i * 1000L + 500, key("ok"), i / 2 % 50, key("txn"), list(append, saw), none));
            }
            int id = store.id();
            store.put(id, 4, fressian(ops.toArray()));
            parts.add(new long[] {first, id});
        }
        store.vector(history, count, parts);
        store.index();
        store.save(name);
    }

    public static void main(String[] arguments) throws IOException {
        if (arguments.length == 2) {
            large(arguments[0], Integer.parseInt(arguments[1]));
            return;
        }
        Files.write(Path.of("values.fressian"), values());
        file("version-1.jepsen", 1);
        file("version-0.jepsen", 0);
    }
}
