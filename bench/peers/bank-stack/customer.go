package main

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
)

// customer is one who may log in.
type customer struct {
	id         int
	salt, hash string
}

// accepts says whether the password is the customer's: SHA-256 with a salt is the contest's choice.
func (c customer) accepts(password string) bool {
	sum := sha256.Sum256([]byte(password + ":" + c.salt))
	return hex.EncodeToString(sum[:]) == c.hash
}

// readCustomers reads all customers, by their logins.
func readCustomers(ctx context.Context, database *sql.DB) (map[string]customer, error) {
	rows, err := database.QueryContext(ctx, "SELECT id, login, salt, password_hash FROM users")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	customers := make(map[string]customer)
	for rows.Next() {
		var one customer
		var login string
		if err := rows.Scan(&one.id, &login, &one.salt, &one.hash); err != nil {
			return nil, err
		}
		customers[login] = one
	}
	return customers, rows.Err()
}
