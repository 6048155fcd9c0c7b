package signin

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"strings"

	"understudy/auth"
)

// Ticket ties the two requests of a sign-in to one browser. It is kept in a cookie of the browser only, so that any server can finish what another one began.
// State, nonce and PKCE verifier follow from its secret, which no other site and no script of a page can read.
type Ticket struct {
	secret string
	Next   string // where the browser goes afterwards; what a browser sends is not trusted
}

func newTicket(next string) Ticket { return Ticket{auth.NewSecret(), next} }

// Text returns the ticket as the value of a cookie.
func (t Ticket) Text() string {
	return t.secret + "." + base64.RawURLEncoding.EncodeToString([]byte(t.Next))
}

// ParseTicket reads the value of a cookie. Of anything else the result is a ticket that fits no answer.
func ParseTicket(text string) Ticket {
	secret, next, _ := strings.Cut(text, ".")
	target, err := base64.RawURLEncoding.DecodeString(next)
	if err != nil || len(secret) != auth.SecretLength {
		return Ticket{}
	}
	return Ticket{secret, string(target)}
}

func (t Ticket) derive(what string) string {
	mac := hmac.New(sha256.New, []byte(t.secret))
	mac.Write([]byte(what))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

func (t Ticket) state() string    { return t.derive("state") }
func (t Ticket) nonce() string    { return t.derive("nonce") }
func (t Ticket) verifier() string { return t.derive("verifier") }

// answers reports whether a state is that of the ticket.
func (t Ticket) answers(state string) bool { return t.secret != "" && same(state, t.state()) }

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
