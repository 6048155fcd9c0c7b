package guard

import (
	"context"
	"encoding/json"
	"net/http"

	"understudy/access"
	"understudy/internal/jsonobj"
	"understudy/server"
	"understudy/store"
)

// items guards server.Items. Handlers may change the namespace, so what is read and written is what they say.
type items struct {
	*Guard
	inner server.Items
}

var _ server.Items = (*items)(nil)

var errChanged = &access.Refusal{Status: http.StatusInternalServerError, Detail: json.RawMessage(`"Auth handler changed the request to an invalid one"`)}

// namespaceOf reads a namespace that a handler may have changed.
func namespaceOf(v *jsonobj.Object, key string) ([]string, error) {
	var list []string
	if raw := v.Get(key); raw != nil && json.Unmarshal(raw, &list) != nil {
		return nil, errChanged
	}
	return list, nil
}

func list(namespace []string) json.RawMessage {
	if namespace == nil {
		return json.RawMessage("[]")
	}
	return encoded(namespace)
}

// item asks about one item.
func (g *items) item(ctx context.Context, action string, namespace []string, key string, more ...any) (context.Context, []string, string, *jsonobj.Object, error) {
	ctx, v, err := g.ask(ctx, access.Store, action, object(append([]any{"namespace", list(namespace), "key", jsonobj.Quote(key)}, more...)...))
	if err != nil {
		return nil, nil, "", nil, err
	}
	if namespace, err = namespaceOf(v, "namespace"); err != nil {
		return nil, nil, "", nil, err
	}
	if json.Unmarshal(v.Get("key"), &key) != nil {
		return nil, nil, "", nil, errChanged
	}
	return ctx, namespace, key, v, nil
}

func (g *items) Put(ctx context.Context, i store.Item) error {
	ctx, namespace, key, v, err := g.item(ctx, "put", i.Namespace, i.Key, "value", orEmpty(i.Value))
	if err != nil {
		return err
	}
	i.Namespace, i.Key = namespace, key
	if value := v.Get("value"); len(value) > 0 && value[0] == '{' {
		i.Value = value
	} else {
		return errChanged
	}
	return g.inner.Put(ctx, i)
}

func (g *items) Get(ctx context.Context, namespace []string, key string, refresh *bool) (*store.Item, error) {
	ctx, namespace, key, _, err := g.item(ctx, "get", namespace, key)
	if err != nil {
		return nil, err
	}
	return g.inner.Get(ctx, namespace, key, refresh)
}

func (g *items) Delete(ctx context.Context, namespace []string, key string) error {
	ctx, namespace, key, _, err := g.item(ctx, "delete", namespace, key)
	if err != nil {
		return err
	}
	return g.inner.Delete(ctx, namespace, key)
}

func (g *items) Search(ctx context.Context, q store.Search, refresh *bool) ([]*store.Item, error) {
	ctx, v, err := g.ask(ctx, access.Store, "search", object(
		"namespace", list(q.Prefix), "filter", orNull(q.Filter), "limit", encoded(q.Limit), "offset", encoded(q.Offset), "query", named(q.Query)))
	if err != nil {
		return nil, err
	}
	if q.Prefix, err = namespaceOf(v, "namespace"); err != nil {
		return nil, err
	}
	if f := v.Get("filter"); len(f) > 0 && f[0] == '{' {
		q.Filter = f
	}
	return g.inner.Search(ctx, q, refresh)
}

// Load completes an item that Search has returned.
func (g *items) Load(ctx context.Context, i *store.Item) (*store.Item, error) {
	return g.inner.Load(ctx, i)
}

func (g *items) Namespaces(ctx context.Context, q store.Namespaces) ([][]string, error) {
	prefix := json.RawMessage(nil)
	if q.Prefix != nil {
		prefix = list(q.Prefix)
	}
	ctx, v, err := g.ask(ctx, access.Store, "list_namespaces", object(
		"namespace", prefix, "suffix", orNull(encoded(q.Suffix)), "max_depth", encoded(q.MaxDepth), "limit", encoded(q.Limit), "offset", encoded(q.Offset)))
	if err != nil {
		return nil, err
	}
	if q.Prefix, err = namespaceOf(v, "namespace"); err != nil {
		return nil, err
	}
	return g.inner.Namespaces(ctx, q)
}
