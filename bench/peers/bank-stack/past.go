package main

import (
	"context"
	"database/sql"

	"github.com/redis/go-redis/v9"
)

// past is what follows from the log: failures since the last success, and the last two successes of each customer, the latest first.
type past struct {
	users, addresses map[string]int
	logins           map[string][]string
}

func readPast(ctx context.Context, database *sql.DB) (*past, error) {
	rows, err := database.QueryContext(ctx, "SELECT CAST(created_at AS CHAR), user_id, login, ip, succeeded FROM login_log ORDER BY id")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	p := &past{users: map[string]int{}, addresses: map[string]int{}, logins: map[string][]string{}}
	for rows.Next() {
		var at, login, address string
		var user sql.NullInt64
		var succeeded bool
		if err := rows.Scan(&at, &user, &login, &address, &succeeded); err != nil {
			return nil, err
		}
		p.add(at, login, address, user.Valid, succeeded)
	}
	return p, rows.Err()
}

func (p *past) add(at, login, address string, isKnown, succeeded bool) {
	if succeeded {
		delete(p.users, login)
		delete(p.addresses, address)
		latest := append([]string{at + " " + address}, p.logins[login]...)
		p.logins[login] = latest[:min(len(latest), 2)]
		return
	}
	p.addresses[address]++
	if isKnown {
		p.users[login]++
	}
}

func (p *past) store(ctx context.Context, client *redis.Client) error {
	pipeline := client.Pipeline()
	send := func(least int) error {
		if pipeline.Len() < least {
			return nil
		}
		_, err := pipeline.Exec(ctx)
		return err
	}
	for key, counts := range map[string]map[string]int{failuresOfUsers: p.users, failuresOfAddresses: p.addresses} {
		for name, count := range counts {
			pipeline.HSet(ctx, key, name, count)
			if err := send(pipelineCommands); err != nil {
				return err
			}
		}
	}
	for login, latest := range p.logins {
		for _, text := range latest {
			pipeline.RPush(ctx, lastLogins+login, text)
		}
		if err := send(pipelineCommands); err != nil {
			return err
		}
	}
	return send(1)
}
