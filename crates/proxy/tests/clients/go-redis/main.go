// go-redis: all kinds of application traffic, sent to the port in the first argument. Prints `done` at the end.
// A printed line `cut` asks the test to close all connections; the test answers with a line.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

func check(holds bool, what ...any) {
	if !holds {
		panic(fmt.Sprintln(what...))
	}
}

func must[T any](value T, err error) T {
	check(err == nil, err)
	return value
}

func open(protocol int) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + os.Args[1], DB: 1, Protocol: protocol, ClientName: "test"})
}

func stringsPart(r *redis.Client) {
	check(must(r.Set(ctx, "s", "v", 100*time.Second).Result()) == "OK")
	check(must(r.Get(ctx, "s").Result()) == "v")
	check(!must(r.SetNX(ctx, "s", "w", 0).Result()))
	check(must(r.TTL(ctx, "s").Result()) > 90*time.Second)
	check(must(r.IncrBy(ctx, "n", 41).Result()) == 41)
	pairs, keys := []any{}, []string{}
	for i := 0; i < 300; i++ {
		keys = append(keys, fmt.Sprint("m", i))
		pairs = append(pairs, keys[i], i)
	}
	check(must(r.MSet(ctx, pairs...).Result()) == "OK")
	for i, value := range must(r.MGet(ctx, keys...).Result()) {
		check(value == fmt.Sprint(i), i, value)
	}
	check(must(r.Del(ctx, keys...).Result()) == 300)
	check(errors.Is(r.Get(ctx, "nobody").Err(), redis.Nil))
}

func hashesAndLists(r *redis.Client) {
	must(r.HSet(ctx, "h", "a", 1, "b", "zwei").Result())
	all := must(r.HGetAll(ctx, "h").Result())
	check(len(all) == 2 && all["a"] == "1" && all["b"] == "zwei", all)
	must(r.RPush(ctx, "l", 1, 2, 3).Result())
	check(strings.Join(must(r.LRange(ctx, "l", 0, -1).Result()), ",") == "1,2,3")
	check(must(r.LPop(ctx, "l").Result()) == "1")
	must(r.ZAdd(ctx, "z", redis.Z{Score: 1.5, Member: "m"}).Result())
	check(must(r.ZScore(ctx, "z", "m").Result()) == 1.5)
}

func pipelines(r *redis.Client) {
	replies := must(r.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i := 0; i < 500; i++ {
			pipe.Set(ctx, fmt.Sprint("p", i), i, 0)
			pipe.Get(ctx, fmt.Sprint("p", i))
		}
		return nil
	}))
	check(len(replies) == 1000)
	for i := 0; i < 500; i++ {
		check(replies[2*i+1].(*redis.StringCmd).Val() == fmt.Sprint(i), i)
	}
}

func transactions(r *redis.Client) {
	replies, err := r.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Incr(ctx, "t{x}")
		pipe.LPush(ctx, "t{x}", 1)
		pipe.Incr(ctx, "t{x}")
		return nil
	})
	check(err != nil && strings.Contains(err.Error(), "WRONGTYPE"), err)
	check(replies[0].(*redis.IntCmd).Val() == 1 && replies[2].(*redis.IntCmd).Val() == 2)
	err = r.Watch(ctx, func(tx *redis.Tx) error {
		must(r.Set(ctx, "t{x}", 7, 0).Result())
		_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error { return pipe.Incr(ctx, "t{x}").Err() })
		return err
	}, "t{x}")
	check(errors.Is(err, redis.TxFailedErr), err)
	check(must(r.Get(ctx, "t{x}").Result()) == "7")
}

func messages(r *redis.Client) {
	subscriber := r.Subscribe(ctx, "news")
	defer subscriber.Close()
	check(subscriber.PSubscribe(ctx, "n*s") == nil)
	for i := 0; i < 2; i++ {
		_, is := must(subscriber.ReceiveTimeout(ctx, 10*time.Second)).(*redis.Subscription)
		check(is, "a subscription")
	}
	check(must(r.Publish(ctx, "news", "hello").Result()) == 2)
	heard := []string{}
	for i := 0; i < 2; i++ {
		message := must(subscriber.ReceiveTimeout(ctx, 10*time.Second)).(*redis.Message)
		heard = append(heard, message.Pattern+":"+message.Channel+":"+message.Payload)
	}
	sort.Strings(heard)
	check(strings.Join(heard, " ") == ":news:hello n*s:news:hello", heard)
}

func blocking(r *redis.Client) {
	popped := make(chan []string)
	go func() { popped <- must(r.BLPop(ctx, 10*time.Second, "queue").Result()) }()
	must(r.Set(ctx, "not-held-up", 1, 0).Result())
	must(r.RPush(ctx, "queue", "job").Result())
	check(strings.Join(<-popped, " ") == "queue job")
	check(errors.Is(r.BLPop(ctx, time.Second, "queue").Err(), redis.Nil))
}

func large(r *redis.Client) {
	value := bytes.Repeat([]byte("abc\r\n"), 8<<20/5)
	must(r.Set(ctx, "large", value, 0).Result())
	check(bytes.Equal(must(r.Get(ctx, "large").Bytes()), value))
}

func errorReplies(r *redis.Client) {
	err := r.LPush(ctx, "s", 1).Err()
	check(err != nil && strings.Contains(err.Error(), "WRONGTYPE"), err)
	err = r.Do(ctx, "NOSUCH", "k").Err()
	check(err != nil && strings.Contains(err.Error(), "unknown command"), err)
	script := redis.NewScript("return redis.call('get', KEYS[1])")
	check(must(script.Run(ctx, r, []string{"s"}).Text()) == "v")
}

func reconnect(r *redis.Client, answers *bufio.Reader) {
	fmt.Println("cut")
	must(answers.ReadString('\n'))
	for i := 0; i < 50; i++ {
		must(r.Set(ctx, "after", i, 0).Result())
	}
	check(must(r.Get(ctx, "after").Result()) == "49")
}

func main() {
	answers := bufio.NewReader(os.Stdin)
	for _, protocol := range []int{2, 3} {
		r := open(protocol)
		must(r.FlushAll(ctx).Result())
		stringsPart(r)
		hashesAndLists(r)
		pipelines(r)
		transactions(r)
		messages(r)
		blocking(r)
		large(r)
		errorReplies(r)
		reconnect(r, answers)
		r.Close()
	}
	fmt.Println("done")
}
