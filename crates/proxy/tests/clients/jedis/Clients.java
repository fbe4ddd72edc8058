// Jedis: all kinds of application traffic, sent to the port in the first argument. Prints `done` at the end.
// A printed line `cut` asks the test to close all connections; the test answers with a line.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.Response;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.params.SetParams;

public final class Clients {
    private static int port;

    private static Jedis open() {
        var config = DefaultJedisClientConfig.builder().database(1).clientName("test").socketTimeoutMillis(20_000);
        return new Jedis(new HostAndPort("127.0.0.1", port), config.build());
    }

    private static void check(boolean holds, Object... what) {
        if (!holds) {
            throw new AssertionError(Arrays.deepToString(what));
        }
    }

    private static void checkRefused(Runnable call, String words) {
        try {
            call.run();
        } catch (JedisDataException refused) {
            check(refused.getMessage().contains(words), refused);
            return;
        }
        check(false, "not refused", words);
    }

    private static void strings(Jedis r) {
        check(r.set("s", "v", SetParams.setParams().ex(100)).equals("OK"));
        check(r.get("s").equals("v"));
        check(r.setnx("s", "w") == 0);
        check(r.ttl("s") > 90);
        check(r.incrBy("n", 41) == 41);
        var pairs = new String[600];
        var keys = new String[300];
        for (int i = 0; i < keys.length; i++) {
            keys[i] = pairs[2 * i] = "m" + i;
            pairs[2 * i + 1] = Integer.toString(i);
        }
        check(r.mset(pairs).equals("OK"));
        List<String> values = r.mget(keys);
        for (int i = 0; i < keys.length; i++) {
            check(values.get(i).equals(Integer.toString(i)), i, values.get(i));
        }
        check(r.del(keys) == 300);
        check(r.get("nobody") == null);
    }

    private static void hashesAndLists(Jedis r) {
        r.hset("h", Map.of("a", "1", "b", "zwei"));
        check(new HashMap<>(r.hgetAll("h")).equals(Map.of("a", "1", "b", "zwei")));
        r.rpush("l", "1", "2", "3");
        check(r.lrange("l", 0, -1).equals(List.of("1", "2", "3")));
        check(r.lpop("l").equals("1"));
        r.zadd("z", 1.5, "m");
        check(r.zscore("z", "m") == 1.5);
    }

    private static void pipelines(Jedis r) {
        Pipeline pipeline = r.pipelined();
        var replies = new Response<?>[500];
        for (int i = 0; i < replies.length; i++) {
            pipeline.set("p" + i, Integer.toString(i));
            replies[i] = pipeline.get("p" + i);
        }
        pipeline.sync();
        for (int i = 0; i < replies.length; i++) {
            check(replies[i].get().equals(Integer.toString(i)), i);
        }
    }

    private static void transactions(Jedis r) {
        Transaction first = r.multi();
        first.incr("t{x}");
        first.lpush("t{x}", "1");
        first.incr("t{x}");
        List<Object> replies = first.exec();
        check(replies.get(0).equals(1L) && replies.get(2).equals(2L), replies);
        check(replies.get(1).toString().contains("WRONGTYPE"), replies);
        r.watch("t{x}");
        try (Jedis other = open()) {
            other.set("t{x}", "7");
        }
        Transaction second = r.multi();
        second.incr("t{x}");
        check(second.exec() == null);
        check(r.get("t{x}").equals("7"));
    }

    private static void messages(Jedis r) throws Exception {
        var heard = new TreeSet<String>();
        var subscribed = new CountDownLatch(2);
        var both = new CountDownLatch(2);
        var listener = new JedisPubSub() {
            @Override
            public void onSubscribe(String channel, int count) {
                subscribed.countDown();
                if (count == 1) {
                    psubscribe("n*s");
                }
            }

            @Override
            public void onPSubscribe(String pattern, int count) {
                subscribed.countDown();
            }

            @Override
            public void onMessage(String channel, String text) {
                heard.add(channel + ":" + text);
                both.countDown();
            }

            @Override
            public void onPMessage(String pattern, String channel, String text) {
                heard.add(pattern + ":" + channel + ":" + text);
                both.countDown();
            }
        };
        var listening = CompletableFuture.runAsync(() -> {
            try (Jedis subscriber = open()) {
                subscriber.subscribe(listener, "news");
            }
        });
        check(subscribed.await(20, TimeUnit.SECONDS), "subscribed");
        check(r.publish("news", "hello") == 2);
        check(both.await(20, TimeUnit.SECONDS), "heard");
        check(heard.toString().equals("[n*s:news:hello, news:hello]"), heard);
        listener.unsubscribe();
        listener.punsubscribe();
        listening.get(20, TimeUnit.SECONDS);
    }

    private static void blocking(Jedis r) throws Exception {
        try (Jedis waiting = open()) {
            var popped = CompletableFuture.supplyAsync(() -> waiting.blpop(10, "queue"));
            r.set("not-held-up", "1");
            r.rpush("queue", "job");
            check(popped.get(20, TimeUnit.SECONDS).equals(List.of("queue", "job")));
            check(waiting.blpop(0.1, "queue") == null);
        }
    }

    private static void large(Jedis r) {
        byte[] value = "abc\r\n".repeat((8 << 20) / 5).getBytes();
        r.set("large".getBytes(), value);
        check(Arrays.equals(r.get("large".getBytes()), value));
    }

    private static void errors(Jedis r) {
        checkRefused(() -> r.lpush("s", "1"), "WRONGTYPE");
        checkRefused(() -> r.sendCommand(() -> "NOSUCH".getBytes(), "k"), "unknown command");
        check(r.eval("return redis.call('get', KEYS[1])", 1, "s").equals("v"));
    }

    private static void reconnect(Jedis r, BufferedReader answers) throws Exception {
        System.out.println("cut");
        answers.readLine();
        // Jedis reports the loss of a connection and connects again at the next command.
        try {
            r.ping();
            check(false, "the connection was cut");
        } catch (JedisConnectionException expected) {
            r.close();
        }
        try (Jedis again = open()) {
            for (int i = 0; i < 50; i++) {
                again.set("after", Integer.toString(i));
            }
            check(again.get("after").equals("49"));
        }
    }

    public static void main(String[] arguments) throws Exception {
        port = Integer.parseInt(arguments[0]);
        Jedis r = open();
        strings(r);
        hashesAndLists(r);
        pipelines(r);
        transactions(r);
        messages(r);
        blocking(r);
        large(r);
        errors(r);
        reconnect(r, new BufferedReader(new InputStreamReader(System.in)));
        System.out.println("done");
        System.exit(0);
    }
}
