package main

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	banAfter  = 10
	lockAfter = 3
	// timeLayout is how times are written in the log and on the page.
	timeLayout = "2006-01-02 15:04:05"
	// redisConnections is the largest number of connections to Redis: one for each request at once of the contest's load.
	redisConnections = 64
	// pipelineCommands bounds the commands of one pipeline while Redis is filled.
	pipelineCommands = 10_000

	failuresOfUsers     = "failures-of-users"
	failuresOfAddresses = "failures-of-addresses"
	// lastLogins begins the key of a list: the customer's last success and the one before it.
	lastLogins = "last-logins:"
)

// outcome is how an attempt ended; decide returns its number.
type outcome int

const (
	succeeded outcome = iota
	banned
	locked
	wrong
)

// decide decides an attempt and records it. Keys: failures of users, failures of addresses, list of last logins. Arguments: address, login of an
// existing customer or an empty text, 1 if the password is right, the two thresholds, text for the list.
var decide = redis.NewScript(`
local address, login, right = ARGV[1], ARGV[2], ARGV[3] == '1'
local outcome = 0
if tonumber(redis.call('HGET', KEYS[2], address) or 0) >= tonumber(ARGV[4]) then
  outcome = 1
elseif login ~= '' and tonumber(redis.call('HGET', KEYS[1], login) or 0) >= tonumber(ARGV[5]) then
  outcome = 2
elseif not right then
  outcome = 3
end
if outcome == 0 then
  redis.call('HDEL', KEYS[2], address)
  redis.call('HDEL', KEYS[1], login)
  redis.call('LPUSH', KEYS[3], ARGV[6])
  redis.call('LTRIM', KEYS[3], 0, 1)
else
  redis.call('HINCRBY', KEYS[2], address, 1)
  if login ~= '' then redis.call('HINCRBY', KEYS[1], login, 1) end
end
return outcome`)

// ledger decides attempts in Redis and logs them in MariaDB.
type ledger struct {
	redis *redis.Client
	log   *attemptLog
}

// openLedger connects to Redis and replaces its content by what follows from the log.
func openLedger(ctx context.Context, address string, database *sql.DB) (*ledger, error) {
	client := redis.NewClient(&redis.Options{Addr: address, PoolSize: redisConnections})
	if err := client.FlushDB(ctx).Err(); err != nil {
		return nil, err
	}
	if err := decide.Load(ctx, client).Err(); err != nil {
		return nil, err
	}
	past, err := readPast(ctx, database)
	if err != nil {
		return nil, err
	}
	if err := past.store(ctx, client); err != nil {
		return nil, err
	}
	return &ledger{redis: client, log: startLog(database)}, nil
}

// attempt decides one attempt and records it. The id is that of an existing customer, or 0.
func (l *ledger) attempt(ctx context.Context, id int, login, address string, isRight bool) (outcome, error) {
	now := time.Now().Format(timeLayout)
	known := ""
	if id != 0 {
		known = login
	}
	keys := []string{failuresOfUsers, failuresOfAddresses, lastLogins + known}
	number, err := decide.Run(ctx, l.redis, keys, address, known, isRight, banAfter, lockAfter, now+" "+address).Int()
	if err != nil {
		return wrong, fmt.Errorf("the counters in Redis: %w", err)
	}
	outcome := outcome(number)
	l.log.add(attempt{at: now, user: id, login: login, address: address, succeeded: outcome == succeeded})
	return outcome, nil
}

// loginBefore returns time and address of the success before the latest one, or of the latest one if it is the first.
func (l *ledger) loginBefore(ctx context.Context, login string) (at, address string, err error) {
	latest, err := l.redis.LRange(ctx, lastLogins+login, 0, 1).Result()
	if err != nil || len(latest) == 0 {
		return "", "", fmt.Errorf("the last logins of %q in Redis: %v", login, err)
	}
	text := latest[len(latest)-1]
	space := strings.LastIndexByte(text, ' ')
	return text[:space], text[space+1:], nil
}

// report returns the banned addresses and the locked logins.
func (l *ledger) report(ctx context.Context) (addresses, logins []string, err error) {
	if addresses, err = l.failedTimes(ctx, failuresOfAddresses, banAfter); err != nil {
		return nil, nil, err
	}
	logins, err = l.failedTimes(ctx, failuresOfUsers, lockAfter)
	return addresses, logins, err
}

func (l *ledger) failedTimes(ctx context.Context, key string, least int) ([]string, error) {
	texts, err := l.redis.HGetAll(ctx, key).Result()
	if err != nil {
		return nil, err
	}
	names := []string{}
	for name, text := range texts {
		count, err := strconv.Atoi(text)
		if err != nil {
			return nil, fmt.Errorf("%s of %q in Redis: %w", key, name, err)
		}
		if count >= least {
			names = append(names, name)
		}
	}
	return names, nil
}
