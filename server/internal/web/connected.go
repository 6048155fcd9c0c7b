package web

import (
	"context"

	"github.com/gofiber/fiber/v2"

	"understudy/server/internal/connection"
)

// WhileConnected runs fn, which may read for long, with a context that is canceled when the client closes the connection, so that its query ends. The body of
// the request must have been read.
func WhileConnected[T any](c *fiber.Ctx, fn func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithCancelCause(c.UserContext())
	defer cancel(nil)
	stop := connection.Watch(c.Context().Conn(), func() { cancel(ErrLeft) })
	defer stop()
	return fn(ctx)
}
