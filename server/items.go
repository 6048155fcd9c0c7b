package server

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/gofiber/fiber/v2"

	"understudy/compat"
	"understudy/internal/fault"
	"understudy/internal/scanlimit"
	"understudy/server/internal/web"
	"understudy/store"
)

// itemHandlers serve the store.
type itemHandlers struct {
	*web.Transport
	store Items
}

func (h *itemHandlers) routes(route register) {
	route("PUT", "/store/items", h.putItem)
	route("GET", "/store/items", h.getItem)
	route("DELETE", "/store/items", h.deleteItem)
	route("POST", "/store/items/search", h.searchItems)
	route("POST", "/store/namespaces", h.searchNamespaces)
}

// itemFault answers errors of a namespace from the store as plain text, as LangGraph Server does.
func itemFault(c *fiber.Ctx, err error) error {
	var f *fault.Error
	if !errors.As(err, &f) || f.Kind != fault.Unprocessable || errors.Is(err, scanlimit.ErrOverBudget) {
		return err
	}
	c.Set(fiber.HeaderContentType, "text/plain; charset=utf-8")
	return c.Status(http.StatusUnprocessableEntity).SendString(f.Message)
}

func (h *itemHandlers) putItem(c *fiber.Ctx) error {
	return h.WithBody(c, func(body []byte) error {
		i, err := compat.PutItem(body)
		if err != nil {
			return err
		}
		if err := h.store.Put(c.UserContext(), i); err != nil {
			return itemFault(c, err)
		}
		return web.SendNothing(c)
	})
}

func (h *itemHandlers) getItem(c *fiber.Ctx) error {
	key := c.Query("key")
	if key == "" && c.Query("namespace") != "" { // a missing namespace is reported first
		return web.SendJSON(c.Status(http.StatusBadRequest), []byte(`{"error":"Key is required"}`))
	}
	i, err := h.store.Get(c.UserContext(), compat.Namespace(c.Query("namespace")), key, compat.Refresh(c.Query("refresh_ttl")))
	if err != nil {
		return itemFault(c, err)
	}
	return web.SendJSON(c, compat.AppendItem(nil, i, false))
}

func (h *itemHandlers) deleteItem(c *fiber.Ctx) error {
	return h.WithBody(c, func(body []byte) error {
		namespace, key, err := compat.DeleteItem(body)
		if err != nil {
			return err
		}
		if err := h.store.Delete(c.UserContext(), namespace, key); err != nil {
			return itemFault(c, err)
		}
		return web.SendNothing(c)
	})
}

func (h *itemHandlers) searchItems(c *fiber.Ctx) error {
	return h.WithBody(c, func(body []byte) error {
		q, refresh, err := compat.SearchItems(body)
		if err != nil {
			return err
		}
		q.Bytes = web.WholeBytes
		items, err := web.WhileConnected(c, func(ctx context.Context) ([]*store.Item, error) { return h.store.Search(ctx, q, refresh) })
		if err != nil {
			return itemFault(c, err)
		}
		l := web.Each(items, func(ctx context.Context, dst []byte, i *store.Item) ([]byte, error) {
			i, err := h.store.Load(ctx, i)
			if i == nil || err != nil {
				return nil, err
			}
			return compat.AppendItem(slices.Grow(dst, len(i.Value)+1024), i, true), nil
		})
		l.Before, l.After = compat.AroundItems()
		return h.SendList(c, l)
	})
}

func (h *itemHandlers) searchNamespaces(c *fiber.Ctx) error {
	return h.WithBody(c, func(body []byte) error {
		q, err := compat.SearchNamespaces(body)
		if err != nil {
			return err
		}
		list, err := web.WhileConnected(c, func(ctx context.Context) ([][]string, error) { return h.store.Namespaces(ctx, q) })
		if err != nil {
			return itemFault(c, err)
		}
		return web.SendJSON(c, compat.AppendNamespaces(nil, list))
	})
}
