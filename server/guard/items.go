package guard

import (
	"context"
	"encoding/json"
	"errors"

	"understudy/access"
	"understudy/compat"
	"understudy/internal/jsonobj"
	"understudy/server"
	"understudy/store"
)

// items guards server.Items. Handlers may change all of a request, so what is read and written is what they say.
type items struct {
	*Guard
	inner server.Items
}

var _ server.Items = (*items)(nil)

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
func (g *items) item(ctx context.Context, action string, namespace []string, key string, more ...any) (context.Context, []string, string, *change, error) {
	if err := store.CheckNamespace(namespace); err != nil { // as LangGraph Server does before it asks
		return nil, nil, "", nil, err
	}
	ctx, v, err := g.change(ctx, access.Store, action, itemNamed(namespace, key, more...))
	if err != nil {
		return nil, nil, "", nil, err
	}
	if namespace, err = namespaceOf(v.now, "namespace"); err != nil {
		return nil, nil, "", nil, err
	}
	if err := v.read(&key, "key"); err != nil {
		return nil, nil, "", nil, err
	}
	return ctx, namespace, key, v, nil
}

// itemNamed is what handlers see of an item.
func itemNamed(namespace []string, key string, more ...any) *jsonobj.Object {
	return object(append([]any{"namespace", list(namespace), "key", jsonobj.Quote(key)}, more...)...)
}

// itemPut is what they see of one that is written, besides its name.
func itemPut(i store.Item) []any {
	ttl := json.RawMessage(nil)
	if i.TTL > 0 {
		ttl = encoded(i.TTL.Minutes())
	}
	return []any{"value", orEmpty(i.Value), "index", i.Index, "ttl", ttl}
}

func (g *items) Put(ctx context.Context, i store.Item) error {
	ctx, namespace, key, v, err := g.item(ctx, "put", i.Namespace, i.Key, itemPut(i)...)
	if err != nil {
		return err
	}
	i.Namespace, i.Key = namespace, key
	if value := v.now.Get("value"); len(value) > 0 && value[0] == '{' {
		i.Value = value
	} else {
		return errChanged
	}
	if index := v.now.Get("index"); v.made("index") {
		var paths []string
		if string(index) != "false" && json.Unmarshal(index, &paths) != nil {
			return errChanged
		}
		if i.Index = index; string(index) == "null" {
			i.Index = nil
		}
	}
	if v.made("ttl") {
		minutes := 0.0
		if err := v.read(&minutes, "ttl"); err != nil {
			return err
		}
		if i.TTL = compat.Minutes(minutes); i.TTL == 0 {
			i.TTL = -1 // none
		}
	}
	return g.inner.Put(ctx, i)
}

func (g *items) Get(ctx context.Context, namespace []string, key string, refresh *bool) (*store.Item, error) {
	ctx, namespace, key, v, err := g.item(ctx, "get", namespace, key, "refresh_ttl", encoded(refresh))
	if err == nil {
		err = v.read(&refresh, "refresh_ttl")
	}
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

// itemsSearched is what handlers see of a search.
func itemsSearched(q store.Search, refresh *bool) *jsonobj.Object {
	return object(
		"namespace", list(q.Prefix), "filter", orNull(q.Filter), "limit", encoded(q.Limit), "offset", encoded(q.Offset), "query", named(q.Query), "refresh_ttl", encoded(refresh))
}

func (g *items) Search(ctx context.Context, q store.Search, refresh *bool) ([]*store.Item, error) {
	if err := store.CheckNamespace(q.Prefix); err != nil {
		return nil, err
	}
	ctx, v, err := g.change(ctx, access.Store, "search", itemsSearched(q, refresh))
	if err != nil {
		return nil, err
	}
	if q.Prefix, err = namespaceOf(v.now, "namespace"); err != nil {
		return nil, err
	}
	if f := v.now.Get("filter"); v.made("filter") {
		switch {
		case string(f) == "null":
			q.Filter = nil
		case f[0] != '{':
			return nil, errChanged
		default:
			q.Filter = f
		}
	}
	if err := v.page(&q.Limit, &q.Offset); err != nil {
		return nil, err
	}
	if err := errors.Join(v.read(&q.Query, "query"), v.read(&refresh, "refresh_ttl")); err != nil {
		return nil, errChanged
	}
	return g.inner.Search(ctx, q, refresh)
}

// Load completes an item that Search has returned.
func (g *items) Load(ctx context.Context, i *store.Item) (*store.Item, error) {
	return g.inner.Load(ctx, i)
}

// namespacesListed is what handlers see of a list of namespaces.
func namespacesListed(q store.Namespaces) *jsonobj.Object {
	labels := func(l []string) json.RawMessage {
		if l == nil {
			return nil
		}
		return list(l)
	}
	depth := json.RawMessage(nil)
	if q.MaxDepth > 0 {
		depth = encoded(q.MaxDepth)
	}
	return object("namespace", labels(q.Prefix), "suffix", labels(q.Suffix), "max_depth", depth, "limit", encoded(q.Limit), "offset", encoded(q.Offset))
}

func (g *items) Namespaces(ctx context.Context, q store.Namespaces) ([][]string, error) {
	for _, labels := range [][]string{q.Prefix, q.Suffix} {
		if err := store.CheckNamespace(labels); err != nil {
			return nil, err
		}
	}
	ctx, v, err := g.change(ctx, access.Store, "list_namespaces", namespacesListed(q))
	if err != nil {
		return nil, err
	}
	if q.Prefix, err = namespaceOf(v.now, "namespace"); err != nil {
		return nil, err
	}
	if q.Suffix, err = namespaceOf(v.now, "suffix"); err != nil {
		return nil, err
	}
	if err := v.page(&q.Limit, &q.Offset); err != nil {
		return nil, err
	}
	if err := v.read(&q.MaxDepth, "max_depth"); err != nil {
		return nil, err
	}
	return g.inner.Namespaces(ctx, q)
}
