package compat

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"understudy/store"
)

// decodeLabels is decode for a body with namespaces. NUL is refused there; in other text it becomes U+FFFD.
func decodeLabels(body []byte, s *Schema, names ...string) (object, error) {
	var given []byte
	if bytes.Contains(body, []byte(`\u0000`)) {
		given = bytes.Clone(body) // decoding changes it
	}
	o, err := decode(body, s)
	if err != nil || given == nil {
		return o, err
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, given); err != nil {
		return nil, ErrJSON
	}
	for _, name := range names {
		for _, label := range members(compact.Bytes()).texts(name) {
			if strings.IndexByte(label, 0) >= 0 {
				return nil, store.NoNUL(label)
			}
		}
	}
	return o, nil
}

// PutItem decodes the body of PUT /store/items.
func PutItem(body []byte) (store.Item, error) {
	o, err := decodeLabels(body, StorePut, "namespace")
	if err != nil {
		return store.Item{}, err
	}
	return store.Item{
		Namespace: o.texts("namespace"),
		Key:       o.text("key"),
		Value:     o.raw("value"),
		TTL:       itemTTL(o),
		Index:     o.raw("index"),
	}, nil
}

// itemTTL returns 0 when the configuration decides, and a negative value when the item must not expire.
func itemTTL(o object) time.Duration {
	if _, given := o["ttl"]; !given {
		return 0
	}
	if ttl := Minutes(o.number("ttl")); ttl > 0 {
		return ttl
	}
	return -1
}

// Minutes limits a time to live to a century, so that it cannot overflow. A number that is not positive is 0.
func Minutes(n float64) time.Duration {
	switch {
	case !(n > 0):
		return 0
	case n >= longestDelay.Minutes():
		return longestDelay
	}
	return time.Duration(n * float64(time.Minute))
}

// DeleteItem decodes the body of DELETE /store/items.
func DeleteItem(body []byte) (namespace []string, key string, err error) {
	o, err := decodeLabels(body, StoreDelete, "namespace")
	if err != nil {
		return nil, "", err
	}
	return o.texts("namespace"), o.text("key"), nil
}

// Namespace reads ?namespace= : labels joined by dots.
func Namespace(s string) []string { return strings.Split(s, ".") }

// Refresh reads refresh_ttl of a query; nil: it does not say.
func Refresh(s string) *bool {
	if s == "" {
		return nil
	}
	yes := True(s)
	return &yes
}

// SearchItems decodes the body of POST /store/items/search. refresh is nil when it was not given.
func SearchItems(body []byte) (q store.Search, refresh *bool, err error) {
	o, err := decodeLabels(body, StoreSearch, "namespace_prefix")
	if err != nil {
		return q, nil, err
	}
	limit := max(o.integer("limit", 0), 0)
	if o.integer("limit", 0) == 0 {
		limit = 10 // zero means the default
	}
	return store.Search{
		Prefix: o.texts("namespace_prefix"),
		Filter: o.raw("filter"),
		Query:  o.text("query"),
		Limit:  limit,
		Offset: max(o.integer("offset", 0), 0),
	}, o.boolPtr("refresh_ttl"), nil
}

// SearchNamespaces decodes the body of POST /store/namespaces.
func SearchNamespaces(body []byte) (store.Namespaces, error) {
	o, err := decodeLabels(body, StoreNamespaces, "prefix", "suffix")
	if err != nil {
		return store.Namespaces{}, err
	}
	return store.Namespaces{
		Prefix:   o.texts("prefix"),
		Suffix:   o.texts("suffix"),
		MaxDepth: max(o.integer("max_depth", 0), 0),
		Limit:    max(o.integer("limit", 100), 0),
		Offset:   max(o.integer("offset", 0), 0),
	}, nil
}

// AppendItem appends an item, null when there is none. An item found by a search also has a score, which is null without a query.
func AppendItem(dst []byte, i *store.Item, found bool) []byte {
	if i == nil {
		return append(dst, "null"...)
	}
	r := newRow(dst, nil)
	r.key("namespace")
	r.dst = appendTexts(r.dst, i.Namespace)
	r.text("key", i.Key)
	r.raw("value", i.Value)
	r.time("created_at", i.CreatedAt)
	r.time("updated_at", i.UpdatedAt)
	if found {
		r.raw("score", score(i.Score))
	}
	return r.end()
}

// score formats a score as Python does: it is read as a float.
func score(s *float64) json.RawMessage {
	if s == nil {
		return nil
	}
	b := strconv.AppendFloat(nil, *s, 'g', -1, 64)
	if !bytes.ContainsAny(b, ".e") {
		b = append(b, ".0"...)
	}
	return b
}

// AroundItems returns the text before and after the items of a search.
func AroundItems() (before, after string) { return `{"items":`, "}" }

// AppendNamespaces appends the answer to a search of namespaces.
func AppendNamespaces(dst []byte, list [][]string) []byte {
	return append(AppendList(append(dst, `{"namespaces":`...), list, appendTexts), '}')
}
