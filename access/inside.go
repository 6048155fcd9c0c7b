package access

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"

	"understudy/internal/cache"
	"understudy/internal/jsonobj"
	"understudy/internal/jsonscan"
)

// InsideHeader carries the credential of a graph that calls the server that runs it.
const InsideHeader = "X-Understudy-Inside"

// Inside makes and reads these credentials. They are valid in this process alone.
type Inside struct {
	key []byte
	// made has credentials by what the configuration of a run says of its actor: most runs of an actor have the same one.
	made *cache.Cache[string, string]
}

const maxMade = 1 << 20 // bytes of credentials, and of what they are made of

// NewInside returns credentials with a new key.
func NewInside() *Inside {
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	return &Inside{key, cache.New[string, string](maxMade)}
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
	content := base64.RawURLEncoding.EncodeToString(body)
	return content + "." + i.sign(content)
}

// OfRun returns the Credential of the actor in the configuration of a run; "" when there is none.
func (i *Inside) OfRun(config json.RawMessage) string {
	said := saidIn(config)
	var buffer [1024]byte
	key := buffer[:0]
	for _, value := range [][]byte{said.user, said.identity, said.permissions, said.apart} { // values of JSON do not have this byte
		key = append(append(key, value...), 0)
	}
	if credential, ok := i.made.Get(string(key)); ok {
		return credential
	}
	a := said.actor()
	if a == nil {
		return ""
	}
	credential := i.Credential(a)
	i.made.Put(string(key), credential, len(key)+len(credential))
	return credential
}

func (i *Inside) sign(content string) string {
	mac := hmac.New(sha256.New, i.key)
	mac.Write([]byte(content))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// Actor returns who a credential acts as; nil when it is not one of this process.
func (i *Inside) Actor(credential string) *Actor {
	content, signature, ok := strings.Cut(credential, ".")
	if !ok || !hmac.Equal([]byte(signature), []byte(i.sign(content))) {
		return nil
	}
	body, err := base64.RawURLEncoding.DecodeString(content)
	var c claim
	if err != nil || json.Unmarshal(body, &c) != nil {
		return nil
	}
	a := Actor(c)
	a.Permissions = append([]string{}, a.Permissions...) // never nil
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
	WriteUser(configurable, a)
	if a.Apart {
		configurable.Set(ApartKey, json.RawMessage("true"))
	}
	configurable.SetText(plainKey, a.Identity)
}

// WriteUser writes what handlers see of the actor there before there is a run.
func WriteUser(configurable *jsonobj.Object, a *Actor) {
	permissions := []byte{'['}
	for i, p := range a.Permissions {
		if i > 0 {
			permissions = append(permissions, ',')
		}
		permissions = jsonobj.AppendText(permissions, p)
	}
	permissions = append(permissions, ']')
	configurable.Set(UserKey, a.User)
	configurable.SetText(IdentityKey, a.Identity)
	configurable.Set(PermissionsKey, permissions)
}

// HideUser returns an object that is shown to clients, such as the payload of a cron, without what Write wrote into the configuration that it has under a key.
func HideUser(payload json.RawMessage, key string) json.RawMessage {
	if !bytes.Contains(payload, []byte(UserKey)) {
		return payload
	}
	o := jsonobj.Of(payload)
	config := jsonobj.Of(o.Get(key))
	configurable := jsonobj.Of(config.Get("configurable"))
	identity := configurable.Text(IdentityKey)
	if identity == "" {
		return payload
	}
	for _, k := range []string{UserKey, IdentityKey, PermissionsKey, ApartKey} {
		configurable.Delete(k)
	}
	if configurable.Text(plainKey) == identity {
		configurable.Delete(plainKey)
	}
	config.Set("configurable", configurable.JSON())
	o.Set(key, config.JSON())
	return o.JSON()
}

// OfRun returns the actor in the configuration of a run or cron (a RunnableConfig); nil when there is none.
func OfRun(config json.RawMessage) *Actor {
	s := saidIn(config)
	return s.actor()
}

// IdentityOfRun returns the Identity of OfRun; "" when there is none.
func IdentityOfRun(config json.RawMessage) string {
	return jsonscan.Unquote(saidIn(config).identity)
}

// said is what the configuration of a run says of who it acts as: JSON, nil for what is absent.
type said struct{ user, identity, permissions, apart json.RawMessage }

// saidIn does not decode the configuration, which is read several times in each run. Names of keys count exactly, as for the server when it removes what clients
// wrote: encoding/json would also read "Configurable".
func saidIn(config json.RawMessage) (s said) {
	var configurable json.RawMessage
	jsonscan.Each(config, func(name []byte, start, end int) bool {
		if jsonscan.IsKey(name, "configurable") {
			configurable = config[start:end]
		}
		return true
	})
	jsonscan.Each(configurable, func(name []byte, start, end int) bool {
		for _, of := range [...]struct {
			key  string
			into *json.RawMessage
		}{{UserKey, &s.user}, {IdentityKey, &s.identity}, {PermissionsKey, &s.permissions}, {ApartKey, &s.apart}} {
			if jsonscan.IsKey(name, of.key) {
				*of.into = configurable[start:end] // of equal keys the last one counts
			}
		}
		return true
	})
	return s
}

func (s *said) actor() *Actor {
	a := &Actor{Identity: jsonscan.Unquote(s.identity), User: s.user, Permissions: []string{}, Apart: s.apart != nil}
	if a.Identity == "" {
		return nil
	}
	var permissions []string
	if json.Unmarshal(orNull(s.permissions), &permissions) == nil {
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
