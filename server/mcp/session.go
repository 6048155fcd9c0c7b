package mcp

import (
	"encoding/json"
	"strings"

	"github.com/google/uuid"
	"github.com/tidwall/gjson"

	"understudy/id"
)

// SessionHeader names the session of a request.
const SessionHeader = "Mcp-Session-Id"

// Session is what a client said of itself at initialize. Its ID has all of it, so that every server can answer every request: nothing is stored.
type Session struct {
	ID      string
	Elicits bool // the client shows forms to its user
}

// elicits ends the ids of sessions whose client shows forms.
const elicits = ".elicits"

// NewSession returns the session that a request of method initialize begins.
func NewSession(m Message) Session {
	s := Session{ID: uuid.NewString()}
	// A client that names no kind of elicitation has forms.
	if e := m.Params.Get("capabilities.elicitation"); e.IsObject() && (e.Get("form").Exists() || !e.Get("url").Exists()) {
		s.ID, s.Elicits = s.ID+elicits, true
	}
	return s
}

// ParseSession reads the id of a session. ok is false for ids that no server has made.
func ParseSession(text string) (s Session, ok bool) {
	key, found := strings.CutSuffix(text, elicits)
	if id.Canonical(key) != key || key == "" {
		return s, false
	}
	return Session{ID: text, Elicits: found}, true
}

// callSpace is the namespace of the ids of the threads of calls.
var callSpace = uuid.NewSHA1(uuid.NameSpaceURL, []byte("understudy/mcp/call"))

// Thread returns the id of the thread of a call: the same on every server, as a client names a call that it cancels by its id alone. owner is who made the call; "":
// not known. Ids of calls are texts or numbers.
func (s Session) Thread(owner string, call json.RawMessage) id.Thread {
	name := s.ID + "\x00" + owner + "\x00" + string(call)
	return id.Thread(uuid.NewSHA1(callSpace, []byte(name)).String())
}

// isID reports whether a value is an id of a request.
func isID(v gjson.Result) bool { return v.Type == gjson.String || v.Type == gjson.Number }
