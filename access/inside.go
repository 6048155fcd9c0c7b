package access

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"

	"understudy/internal/jsonobj"
)

// InsideHeader carries the credential of a graph that calls the server that runs it.
const InsideHeader = "X-Understudy-Inside"

// Inside makes and reads these credentials. They are valid in this process alone.
type Inside struct{ key []byte }

// NewInside returns credentials with a new key.
func NewInside() *Inside {
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	return &Inside{key}
}

// claim is what a credential says.
type claim struct {
	Identity      string
	DisplayName   string
	Authenticated bool
	Permissions   []string
	User          json.RawMessage
	Apart         bool `json:"-"` // false: an actor who is apart has no credential
}

// Credential returns a credential by which its bearer acts as the actor; "" for one who is Apart.
func (i *Inside) Credential(a *Actor) string {
	if a.Apart {
		return ""
	}
	body, err := json.Marshal(claim(*a))
	if err != nil { // User is not JSON: no actor is like that
		return ""
	}
	text := base64.RawURLEncoding.EncodeToString(body)
	return text + "." + i.sign(text)
}

func (i *Inside) sign(text string) string {
	mac := hmac.New(sha256.New, i.key)
	mac.Write([]byte(text))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// Actor returns who a credential acts as; nil when it is not one of this process.
func (i *Inside) Actor(credential string) *Actor {
	text, signature, ok := strings.Cut(credential, ".")
	if !ok || !hmac.Equal([]byte(signature), []byte(i.sign(text))) {
		return nil
	}
	body, err := base64.RawURLEncoding.DecodeString(text)
	var c claim
	if err != nil || json.Unmarshal(body, &c) != nil {
		return nil
	}
	a := Actor(c)
	a.Permissions = slices.Concat([]string{}, a.Permissions)
	return &a
}

// Keys of a run's configuration that say who it acts as.
const (
	UserKey        = "langgraph_auth_user"
	IdentityKey    = "langgraph_auth_user_id"
	PermissionsKey = "langgraph_auth_permissions"
	ApartKey       = "__langgraph_auth_apart" // with "__", so that no checkpoint has it
	plainKey       = "user_id"
)

// Write writes the actor into the configurable of a run.
func Write(configurable *jsonobj.Object, a *Actor) {
	permissions, err := json.Marshal(slices.Concat([]string{}, a.Permissions))
	if err != nil {
		permissions = []byte("[]")
	}
	configurable.Set(UserKey, a.User)
	configurable.SetText(IdentityKey, a.Identity)
	configurable.Set(PermissionsKey, permissions)
	if a.Apart {
		configurable.Set(ApartKey, json.RawMessage("true"))
	}
	configurable.SetText(plainKey, a.Identity)
}

// OfRun returns the actor in the configuration of a run or cron (a RunnableConfig); nil when there is none. Names of keys count exactly, as for the server
// when it removes what clients wrote: encoding/json would also read "Configurable".
func OfRun(config json.RawMessage) *Actor {
	c := jsonobj.Of(jsonobj.Of(config).Get("configurable"))
	a := &Actor{Identity: c.Text(IdentityKey), User: c.Get(UserKey), Permissions: []string{}, Apart: c.Get(ApartKey) != nil}
	if a.Identity == "" {
		return nil
	}
	var permissions []string
	if json.Unmarshal(orNull(c.Get(PermissionsKey)), &permissions) == nil {
		a.Permissions = append(a.Permissions, permissions...)
	}
	user := jsonobj.Of(a.User)
	if a.DisplayName = user.Text("display_name"); a.DisplayName == "" {
		a.DisplayName = a.Identity
	}
	a.Authenticated = string(user.Get("is_authenticated")) == "true"
	return a
}

func orNull(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("null")
	}
	return raw
}
