package main

import (
	"database/sql"
	"log"
	"strings"
	"time"
)

const (
	// batchRows is the largest number of rows of one INSERT.
	batchRows = 500
	// batchWait is how long the first row of a batch waits for others.
	batchWait = 100 * time.Millisecond
	// waitingAttempts bounds the attempts that are answered and not yet in MariaDB; further requests wait.
	waitingAttempts = 50_000
)

// attempt is a row of login_log. The user is 0 if the login does not exist.
type attempt struct {
	at, login, address string
	user               int
	succeeded          bool
}

// attemptLog writes attempts to MariaDB behind the requests. Attempts that wait are lost if the program ends.
type attemptLog struct {
	database *sql.DB
	waiting  chan attempt
}

func startLog(database *sql.DB) *attemptLog {
	l := &attemptLog{database: database, waiting: make(chan attempt, waitingAttempts)}
	go l.write()
	return l
}

func (l *attemptLog) add(one attempt) {
	l.waiting <- one
}

func (l *attemptLog) write() {
	for first := range l.waiting {
		if err := l.insert(l.gather(first)); err != nil {
			log.Printf("bank-stack: attempts are not logged in MariaDB: %v", err)
		}
	}
}

// gather collects a batch that begins with this attempt.
func (l *attemptLog) gather(first attempt) []attempt {
	batch := []attempt{first}
	over := time.After(batchWait)
	for len(batch) < batchRows {
		select {
		case next := <-l.waiting:
			batch = append(batch, next)
		case <-over:
			return batch
		}
	}
	return batch
}

func (l *attemptLog) insert(batch []attempt) error {
	values := make([]any, 0, 5*len(batch))
	for _, one := range batch {
		user := sql.NullInt64{Int64: int64(one.user), Valid: one.user != 0}
		values = append(values, one.at, user, one.login, one.address, one.succeeded)
	}
	rows := strings.Repeat(",(?,?,?,?,?)", len(batch))[1:]
	_, err := l.database.Exec("INSERT INTO login_log (created_at, user_id, login, ip, succeeded) VALUES "+rows, values...)
	return err
}
