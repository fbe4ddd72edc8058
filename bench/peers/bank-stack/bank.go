package main

import (
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"strings"
)

// formBytes bounds the body of POST /login.
const formBytes = 64 << 10

var notices = map[outcome]string{
	banned: "You're banned.",
	locked: "This account is locked.",
	wrong:  "Wrong username or password",
}

// bank answers the four routes; nginx in front of it has the files.
type bank struct {
	customers map[string]customer
	ledger    *ledger
	sessions  sessions
}

func (b *bank) handler() http.Handler {
	routes := http.NewServeMux()
	routes.HandleFunc("GET /{$}", b.index)
	routes.HandleFunc("POST /login", b.logIn)
	routes.HandleFunc("GET /mypage", b.customerPage)
	routes.HandleFunc("GET /report", b.report)
	return routes
}

func (b *bank) index(w http.ResponseWriter, r *http.Request) {
	answer(w, indexPage(takeNotice(w, r)))
}

func (b *bank) logIn(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, formBytes)
	login, password := r.PostFormValue("login"), r.PostFormValue("password")
	customer, isKnown := b.customers[login]
	isRight := isKnown && customer.accepts(password)
	outcome, err := b.ledger.attempt(r.Context(), customer.id, login, clientAddress(r), isRight)
	switch {
	case err != nil:
		fail(w, r, err)
	case outcome == succeeded:
		b.sessions.start(w, login)
		redirect(w, "/mypage")
	default:
		setNotice(w, notices[outcome])
		redirect(w, "/")
	}
}

func (b *bank) customerPage(w http.ResponseWriter, r *http.Request) {
	login, isLoggedIn := b.sessions.login(r)
	if !isLoggedIn {
		setNotice(w, "You must be logged in")
		redirect(w, "/")
		return
	}
	at, address, err := b.ledger.loginBefore(r.Context(), login)
	if err != nil {
		fail(w, r, err)
		return
	}
	answer(w, customerPage(login, at, address))
}

func (b *bank) report(w http.ResponseWriter, r *http.Request) {
	addresses, logins, err := b.ledger.report(r.Context())
	if err != nil {
		fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(map[string][]string{"banned_ips": addresses, "locked_users": logins})
}

// clientAddress is what the proxy says. Only the proxy reaches this program: it listens on the loopback interface.
func clientAddress(r *http.Request) string {
	if forwarded := r.Header.Get("X-Forwarded-For"); forwarded != "" {
		return strings.TrimSpace(forwarded[strings.LastIndexByte(forwarded, ',')+1:])
	}
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	return host
}

func answer(w http.ResponseWriter, page string) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(page)))
	io.WriteString(w, page)
}

func redirect(w http.ResponseWriter, where string) {
	w.Header().Set("Location", where)
	w.WriteHeader(http.StatusFound)
}

func fail(w http.ResponseWriter, r *http.Request, err error) {
	log.Printf("bank-stack: %s %s: %v", r.Method, r.URL.Path, err)
	http.Error(w, "The bank is out of order.", http.StatusInternalServerError)
}
