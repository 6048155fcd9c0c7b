package access

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"

	"understudy/internal/cache"
	"understudy/internal/jsonobj"
)

// Owner is the Policy by which each actor reaches what they created and nothing else: threads with their runs and states, crons, assistants, and the
// items of the store below their identity. Assistants that the server made for its graphs are for everyone to use, and read-only.
type Owner struct {
	// Key is the key of metadata that holds the identity of the owner. Requests cannot set it to anything else.
	Key string
	// Reserved are further keys of metadata that requests cannot set.
	Reserved []string
}

var (
	_ Stamper  = Owner{}
	_ Selector = Owner{}
)

// errNotOwner refuses a namespace of the store that does not begin with the identity of the actor.
var errNotOwner = &Refusal{Status: http.StatusForbidden, Detail: json.RawMessage(`"Forbidden"`)}

// Decide implements Policy.
func (o Owner) Decide(_ context.Context, actor *Actor, questions ...Question) ([]Decision, error) {
	out := make([]Decision, len(questions))
	for n, q := range questions {
		var err error
		if q.Resource == Store {
			out[n], err = o.item(actor, q)
		} else {
			out[n], err = o.owned(actor, q)
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// writes are the actions whose value has metadata that is stored.
var writes = []string{"create", "update", "create_run"}

// selection says which filter an actor has.
type selection struct {
	key, identity string
	shared        bool // assistants of the system are too
}

// selections has filters, because each request of an actor needs one: making it is most of what the policy costs.
var selections = cache.New[selection, *Filter](4096)

func (s selection) filter() json.RawMessage {
	own := jsonobj.Single(s.key, s.identity)
	if s.shared {
		return json.RawMessage(`{"$or":[` + string(own) + `,{"created_by":"system"}]}`)
	}
	return own
}

func (o Owner) selection(actor *Actor, resource, action string) selection {
	return selection{o.Key, actor.Identity, resource == Assistants && (action == "read" || action == "search")}
}

// Select implements Selector.
func (o Owner) Select(actor *Actor, resource, action string) (*Filter, bool) {
	if resource == Store {
		return nil, false
	}
	of := o.selection(actor, resource, action)
	if f, ok := selections.Get(of); ok {
		return f, true
	}
	f, err := ParseFilter(of.filter())
	if err != nil {
		return nil, false
	}
	selections.Put(of, f, 1)
	return f, true
}

func (o Owner) owned(actor *Actor, q Question) (d Decision, err error) {
	d.Filter = o.selection(actor, q.Resource, q.Action).filter()
	if !slices.Contains(writes, q.Action) {
		return d, nil
	}
	value, err := jsonobj.Parse(q.Value)
	if err != nil {
		return d, err
	}
	value.Set("metadata", o.stamp(actor, q.Resource, value.Get("metadata")))
	d.Value = value.JSON()
	return d, nil
}

// stamp returns metadata that say whose they are.
func (o Owner) stamp(actor *Actor, resource string, metadata json.RawMessage) json.RawMessage {
	m := jsonobj.Of(metadata)
	for _, key := range o.Reserved {
		m.Delete(key)
	}
	m.SetText(o.Key, actor.Identity)
	if resource == Assistants && m.Text("created_by") == "system" { // everyone reads those
		m.Delete("created_by")
	}
	return m.JSON()
}

// Stamp implements Stamper.
func (o Owner) Stamp(actor *Actor, resource, action string, metadata json.RawMessage) (json.RawMessage, *Filter, error) {
	f, ok := o.Select(actor, resource, action)
	if !ok { // no identity has a filter that is not valid
		return nil, nil, badFilter("that of the owner")
	}
	return o.stamp(actor, resource, metadata), f, nil
}

// item keeps an actor in the namespaces that begin with their identity.
func (o Owner) item(actor *Actor, q Question) (d Decision, err error) {
	value, err := jsonobj.Parse(q.Value)
	if err != nil {
		return d, err
	}
	var namespace []string
	if raw := value.Get("namespace"); raw != nil {
		if err := json.Unmarshal(raw, &namespace); err != nil {
			return d, err
		}
	}
	switch {
	case len(namespace) > 0 && namespace[0] == actor.Identity:
		return d, nil
	case len(namespace) == 0 && (q.Action == "search" || q.Action == "list_namespaces"):
		own, err := json.Marshal([]string{actor.Identity})
		if err != nil {
			return d, err
		}
		value.Set("namespace", own)
		d.Value = value.JSON()
		return d, nil
	}
	return d, errNotOwner
}
