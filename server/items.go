package server

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/gofiber/fiber/v2"

	"understudy/compat"
	"understudy/internal/fault"
	"understudy/internal/scan"
	"understudy/store"
)

func (s *Server) itemRoutes() {
	s.route("PUT", "/store/items", s.putItem)
	s.route("GET", "/store/items", s.getItem)
	s.route("DELETE", "/store/items", s.deleteItem)
	s.route("POST", "/store/items/search", s.searchItems)
	s.route("POST", "/store/namespaces", s.searchNamespaces)
}

// itemFault answers errors of a namespace from the store as plain text, as LangGraph Server does.
func itemFault(c *fiber.Ctx, err error) error {
	var f *fault.Error
	if !errors.As(err, &f) || f.Kind != fault.Unprocessable || errors.Is(err, scan.ErrOverBudget) {
		return err
	}
	c.Set(fiber.HeaderContentType, "text/plain; charset=utf-8")
	return c.Status(http.StatusUnprocessableEntity).SendString(f.Message)
}

func (s *Server) putItem(c *fiber.Ctx) error {
	return s.withBody(c, func(body []byte) error {
		i, err := compat.PutItem(body)
		if err != nil {
			return err
		}
		if err := s.opts.Items.Put(c.UserContext(), i); err != nil {
			return itemFault(c, err)
		}
		return sendNothing(c)
	})
}

func (s *Server) getItem(c *fiber.Ctx) error {
	key := c.Query("key")
	if key == "" && c.Query("namespace") != "" { // a missing namespace is reported first
		return sendJSON(c.Status(http.StatusBadRequest), []byte(`{"error":"Key is required"}`))
	}
	var refresh *bool
	if asked := c.Query("refresh_ttl"); asked != "" {
		yes := compat.True(asked)
		refresh = &yes
	}
	i, err := s.opts.Items.Get(c.UserContext(), compat.Namespace(c.Query("namespace")), key, refresh)
	if err != nil {
		return itemFault(c, err)
	}
	return sendJSON(c, compat.AppendItem(nil, i, false))
}

func (s *Server) deleteItem(c *fiber.Ctx) error {
	return s.withBody(c, func(body []byte) error {
		namespace, key, err := compat.DeleteItem(body)
		if err != nil {
			return err
		}
		if err := s.opts.Items.Delete(c.UserContext(), namespace, key); err != nil {
			return itemFault(c, err)
		}
		return sendNothing(c)
	})
}

func (s *Server) searchItems(c *fiber.Ctx) error {
	return s.withBody(c, func(body []byte) error {
		q, refresh, err := compat.SearchItems(body)
		if err != nil {
			return err
		}
		if q.Limit == 0 {
			return sendJSON(c, []byte(`{"items":[]}`))
		}
		q.Bytes = wholeBytes
		items, err := reading(c, func(ctx context.Context) ([]*store.Item, error) { return s.opts.Items.Search(ctx, q, refresh) })
		if err != nil {
			return itemFault(c, err)
		}
		l := each(items, func(ctx context.Context, dst []byte, i *store.Item) ([]byte, error) {
			i, err := s.opts.Items.Load(ctx, i)
			if i == nil || err != nil {
				return nil, err
			}
			return compat.AppendItem(slices.Grow(dst, len(i.Value)+1024), i, true), nil
		})
		l.before, l.after = compat.AroundItems()
		return s.sendList(c, l)
	})
}

func (s *Server) searchNamespaces(c *fiber.Ctx) error {
	return s.withBody(c, func(body []byte) error {
		q, err := compat.SearchNamespaces(body)
		if err != nil {
			return err
		}
		if q.Limit == 0 {
			return sendJSON(c, compat.AppendNamespaces(nil, nil))
		}
		list, err := reading(c, func(ctx context.Context) ([][]string, error) { return s.opts.Items.Namespaces(ctx, q) })
		if err != nil {
			return itemFault(c, err)
		}
		return sendJSON(c, compat.AppendNamespaces(nil, list))
	})
}
