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
)

// frontMessage bounds a message of a WebSocket of the application, as uvicorn does.
const frontMessage = 16 << 20

// frontSocket connects a client with a WebSocket route of the application.
func (s *Server) frontSocket(c *fiber.Ctx, ctx context.Context, r *gate.Request) error { //nolint:revive // the context is that of the request
	if err := handshake(c, s.allows); err != nil {
		return err
	}
	if !s.slots.take(1) {
		return errManyStreams
	}
	ctx, cancel := context.WithCancelCause(ctx)
	socket, refusal, err := s.opts.App.Dial(ctx, r) //nolint:bodyclose // answerWith closes it
	if err != nil || refusal != nil {
		s.slots.give(1)
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
	req := requestOf(c)
	req.streamed = true
	k := &frontSocket{Socket: socket, ctx: ctx, cancel: cancel, req: req}
	s.upgrade(c, func(w *websocket, err error) {
		if err != nil {
			k.release(s.transport)
			s.done(req, http.StatusSwitchingProtocols, ended(err))
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
	req    *request
}

func (k *frontSocket) release(s *transport) {
	k.cancel(errLeft)
	k.Close()
	s.slots.give(1)
}

// serve passes messages on in both directions until one side ends the socket.
func (k *frontSocket) serve(w *websocket) {
	s := w.s
	s.metrics.streams.Inc()
	var err error
	defer func() {
		k.release(s)
		s.metrics.streams.Dec()
		why := ended(err)
		s.metrics.ended.WithLabelValues(why).Inc()
		s.done(k.req, http.StatusSwitchingProtocols, why)
	}()
	if !s.lingering.Enter() { // the server does not wait for connections that fasthttp has handed over
		err = ErrShutdown
		return
	}
	defer s.lingering.Leave()
	defer context.AfterFunc(s.streaming, func() {
		k.cancel(context.Cause(s.streaming))
		w.interrupt()
	})()
	w.in.MaxFrameSize, w.in.MaxMessageSize = frontMessage, frontMessage

	var others sync.WaitGroup
	others.Go(func() {
		k.down(w)
		w.interrupt()
	})
	others.Go(func() { k.ping(w) })
	err = k.up(w)
	k.cancel(err)
	others.Wait()
	if cause := context.Cause(s.streaming); cause != nil {
		err = cause
		w.close(&closeError{statusServiceRestart, "the server is restarting, connect again"})
	}
	w.await()
}

// up passes messages of the client on.
func (k *frontSocket) up(w *websocket) error {
	for {
		w.expect(silentBeats * w.s.heartbeat)
		h, err := w.in.NextFrame()
		if err == nil && h.OpCode.IsControl() {
			if err = w.control(h, &w.in); err == nil {
				continue
			}
		}
		var data []byte
		if err == nil {
			w.expect(w.s.bodyTimeout)
			data, err = io.ReadAll(&w.in)
		}
		if err != nil {
			err = readError(err)
			var why *closeError
			code, reason := int(w.said), ""
			if errors.As(err, &why) {
				w.close(why)
				code, reason = int(why.code), why.text
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
func (k *frontSocket) down(w *websocket) {
	for {
		m, err := k.Read(k.ctx)
		switch {
		case k.ctx.Err() != nil:
			return
		case err != nil:
			w.close(&closeError{ws.StatusInternalServerError, ""})
			return
		case m.Close:
			if m.Code == 1005 || m.Code == 1006 || m.Code < 1000 || m.Code > 4999 {
				m.Code = int(ws.StatusInternalServerError)
			}
			w.close(&closeError{ws.StatusCode(m.Code), m.Reason})
			return
		case m.Binary:
			err = w.frame(ws.OpBinary, m.Data)
		default:
			err = w.frame(ws.OpText, m.Data)
		}
		if err != nil {
			return
		}
	}
}

// ping finds out whether the client is there.
func (k *frontSocket) ping(w *websocket) {
	tick := time.NewTicker(pingBeats * w.s.heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if w.frame(ws.OpPing, nil) != nil {
				return
			}
		case <-k.ctx.Done():
			return
		}
	}
}
