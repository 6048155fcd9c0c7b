package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/gobwas/ws"
	"github.com/gofiber/fiber/v2"

	"understudy/gate"
	"understudy/server/internal/web"
)

// frontMessage bounds a message of a WebSocket of the application, as uvicorn does.
const frontMessage = 16 << 20

// frontSocket connects a client with a WebSocket route of the application.
func (s *Server) frontSocket(c *fiber.Ctx, ctx context.Context, r *gate.Request) error { //nolint:revive // the context is that of the request
	if err := web.Handshake(c, s.allows); err != nil {
		return err
	}
	if !s.Slots.Take(1) {
		return web.ErrManyStreams
	}
	ctx, cancel := context.WithCancelCause(ctx)
	socket, refusal, err := s.opts.App.Dial(ctx, r) //nolint:bodyclose // answerWith closes it
	if err != nil || refusal != nil {
		s.Slots.Give(1)
		cancel(nil)
		if err != nil {
			return err
		}
		return answerWith(c, refusal)
	}
	for name, values := range socket.Header {
		for _, v := range values {
			c.Response().Header.Add(name, v)
		}
	}
	if socket.Subprotocol != "" {
		c.Set("Sec-WebSocket-Protocol", socket.Subprotocol)
	}
	req := web.Of(c)
	req.Streamed = true
	k := &frontSocket{Socket: socket, ctx: ctx, cancel: cancel, req: req, withdrawn: s.followOuter(c, r)}
	s.Upgrade(c, func(w *web.Websocket, err error) {
		if err != nil {
			k.release(s.Transport)
			s.Done(req, http.StatusSwitchingProtocols, web.Ended(err))
			return
		}
		k.serve(w)
	})
	return nil
}

// answerWith answers with a whole response.
func answerWith(c *fiber.Ctx, r *http.Response) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	addHeader(c, r.Header)
	c.Status(r.StatusCode).Response().SetBodyRaw(body)
	return nil
}

// frontSocket is an open WebSocket of the application.
type frontSocket struct {
	*gate.Socket
	ctx    context.Context //nolint:containedctx // the life of the socket
	cancel context.CancelCauseFunc
	req    *web.Request

	withdrawn func(ctx context.Context) bool // whether the credentials of the client were; nil: they cannot be
}

func (k *frontSocket) isWithdrawn() bool { return k.withdrawn != nil && k.withdrawn(k.ctx) }

func (k *frontSocket) release(s *web.Transport) {
	k.cancel(web.ErrLeft)
	k.Close()
	s.Slots.Give(1)
}

// serve passes messages on in both directions until one side ends the socket.
func (k *frontSocket) serve(w *web.Websocket) {
	s := w.Transport
	s.Metrics.Streams.Inc()
	var err error
	defer func() {
		k.release(s)
		s.Metrics.Streams.Dec()
		why := web.Ended(err)
		s.Metrics.Ended.WithLabelValues(why).Inc()
		s.Done(k.req, http.StatusSwitchingProtocols, why)
	}()
	if !s.Lingering.Enter() { // the server does not wait for connections that fasthttp has handed over
		err = ErrShutdown
		w.Close(restarting)
		return
	}
	defer s.Lingering.Leave()
	defer context.AfterFunc(s.Streaming, func() {
		k.cancel(context.Cause(s.Streaming))
		w.Interrupt()
	})()
	w.In.MaxFrameSize, w.In.MaxMessageSize = frontMessage, frontMessage

	var others sync.WaitGroup
	others.Go(func() {
		k.down(w)
		w.Interrupt()
	})
	others.Go(func() { k.ping(w) })
	err = k.up(w)
	k.cancel(err)
	others.Wait()
	if cause := context.Cause(s.Streaming); cause != nil {
		err = cause
		w.Close(restarting)
	}
	w.Await()
}

var withdrawn = &web.CloseError{Code: ws.StatusPolicyViolation, Text: "the credentials have expired or were revoked"}

var restarting = &web.CloseError{Code: web.StatusServiceRestart, Text: "the server is restarting, connect again"}

// up passes messages of the client on.
func (k *frontSocket) up(w *web.Websocket) error {
	for {
		w.Expect(web.SilentBeats * w.Transport.Heartbeat)
		h, err := w.In.NextFrame()
		if err == nil && h.OpCode.IsControl() {
			if err = w.Control(h, &w.In); err == nil {
				continue
			}
		}
		var data []byte
		if err == nil {
			w.Expect(w.Transport.BodyTimeout)
			data, err = io.ReadAll(&w.In)
		}
		if err == nil && k.isWithdrawn() {
			err = withdrawn
		}
		if err != nil {
			err = web.ReadError(err)
			var why *web.CloseError
			code, reason := int(w.Said), ""
			if errors.As(err, &why) {
				w.Close(why)
				code, reason = int(why.Code), why.Text
			}
			if code == 0 {
				code = 1006
			}
			_ = k.Write(k.ctx, gate.Message{Close: true, Code: code, Reason: reason})
			return err
		}
		if err := k.Write(k.ctx, gate.Message{Data: data, Binary: h.OpCode == ws.OpBinary}); err != nil {
			return err
		}
	}
}

// down passes messages of the application on until it closes the socket.
func (k *frontSocket) down(w *web.Websocket) {
	for {
		m, err := k.Read(k.ctx)
		switch {
		case k.ctx.Err() != nil:
			return
		case err != nil:
			w.Close(&web.CloseError{Code: ws.StatusInternalServerError, Text: ""})
			return
		case m.Close:
			if m.Code == 1005 || m.Code == 1006 || m.Code < 1000 || m.Code > 4999 {
				m.Code = int(ws.StatusInternalServerError)
			}
			w.Close(&web.CloseError{Code: ws.StatusCode(m.Code), Text: m.Reason})
			return
		case m.Binary:
			err = w.Frame(ws.OpBinary, m.Data)
		default:
			err = w.Frame(ws.OpText, m.Data)
		}
		if err != nil {
			return
		}
	}
}

// ping finds out whether the client is there.
func (k *frontSocket) ping(w *web.Websocket) {
	tick := time.NewTicker(web.PingBeats * w.Transport.Heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if k.isWithdrawn() {
				w.Close(withdrawn)
				w.Interrupt()
				return
			}
			if w.Frame(ws.OpPing, nil) != nil {
				return
			}
		case <-k.ctx.Done():
			return
		}
	}
}
