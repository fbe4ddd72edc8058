// Command bank-stack is the bank (apps/bank) on the stack that contestants tuned: it runs behind nginx, keeps counters of failures and last logins
// in Redis, and the log of attempts in MariaDB.
//
// It does what the published fast solutions do: customers are in memory from the start, pages are joined strings, and attempts reach MariaDB in
// batches, after they have been answered. Unlike these it decides and counts an attempt in one step (a script in Redis), so that attempts
// that arrive at once see one another.
//
// Settings are environment variables: the contest's ISU4_DB_HOST, ISU4_DB_PORT, ISU4_DB_USER, ISU4_DB_PASSWORD and ISU4_DB_NAME, and the
// addresses LISTEN (of this program) and REDIS. Thresholds are the contest's.
package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"runtime/debug"

	"github.com/go-sql-driver/mysql"
)

// garbagePercent lets the heap grow tenfold between collections: the customers alone take most of a small heap, and are marked in each.
const garbagePercent = 1000

// databaseConnections is the largest number of connections to MariaDB: the writer of the log uses one, a report another.
const databaseConnections = 4

func main() {
	debug.SetGCPercent(garbagePercent)
	if err := serve(context.Background()); err != nil {
		log.Fatalf("bank-stack: %v", err)
	}
}

func serve(ctx context.Context) error {
	database, err := openDatabase()
	if err != nil {
		return err
	}
	customers, err := readCustomers(ctx, database)
	if err != nil {
		return fmt.Errorf("reading the customers from MariaDB: %w", err)
	}
	ledger, err := openLedger(ctx, os.Getenv("REDIS"), database)
	if err != nil {
		return fmt.Errorf("filling Redis at %q: %w", os.Getenv("REDIS"), err)
	}
	bank := &bank{customers: customers, ledger: ledger, sessions: newSessions()}
	return http.ListenAndServe(os.Getenv("LISTEN"), bank.handler())
}

func openDatabase() (*sql.DB, error) {
	config := mysql.NewConfig()
	config.Net = "tcp"
	config.Addr = net.JoinHostPort(os.Getenv("ISU4_DB_HOST"), os.Getenv("ISU4_DB_PORT"))
	config.User = os.Getenv("ISU4_DB_USER")
	config.Passwd = os.Getenv("ISU4_DB_PASSWORD")
	config.DBName = os.Getenv("ISU4_DB_NAME")
	// One round trip for a statement: it is not prepared first.
	config.InterpolateParams = true
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, fmt.Errorf("settings of MariaDB: %w", err)
	}
	database := sql.OpenDB(connector)
	database.SetMaxOpenConns(databaseConnections)
	return database, nil
}
