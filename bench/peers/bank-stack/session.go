package main

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strings"
)

const (
	sessionCookie = "bank_session"
	noticeCookie  = "bank_notice"
)

// sessions signs logins and checks the signatures. The key is of this process: a restart ends all sessions.
type sessions struct {
	key []byte
}

func newSessions() sessions {
	key := make([]byte, sha256.Size)
	// Never fails: the program would end.
	rand.Read(key)
	return sessions{key}
}

// start sets the cookie of a session for this login.
func (s sessions) start(w http.ResponseWriter, login string) {
	value := encode([]byte(login))
	set(w, sessionCookie, value+"."+s.signature(value))
}

// login returns the login that the request's cookie was made for.
func (s sessions) login(r *http.Request) (string, bool) {
	cookie, err := r.Cookie(sessionCookie)
	if err != nil {
		return "", false
	}
	value, signature, isSigned := strings.Cut(cookie.Value, ".")
	if !isSigned || !hmac.Equal([]byte(signature), []byte(s.signature(value))) {
		return "", false
	}
	login, err := base64.RawURLEncoding.DecodeString(value)
	return string(login), err == nil
}

func (s sessions) signature(value string) string {
	mac := hmac.New(sha256.New, s.key)
	mac.Write([]byte(value))
	return encode(mac.Sum(nil))
}

// takeNotice returns the pending notice and removes its cookie.
func takeNotice(w http.ResponseWriter, r *http.Request) string {
	cookie, err := r.Cookie(noticeCookie)
	if err != nil {
		return ""
	}
	http.SetCookie(w, &http.Cookie{Name: noticeCookie, Path: "/", MaxAge: -1})
	text, _ := base64.RawURLEncoding.DecodeString(cookie.Value)
	return string(text)
}

func setNotice(w http.ResponseWriter, text string) {
	set(w, noticeCookie, encode([]byte(text)))
}

func set(w http.ResponseWriter, name, value string) {
	http.SetCookie(w, &http.Cookie{Name: name, Value: value, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode})
}

func encode(bytes []byte) string {
	return base64.RawURLEncoding.EncodeToString(bytes)
}
