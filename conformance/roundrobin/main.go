// Command roundrobin is a reverse proxy that sends each request to the next of several servers, whatever thread or run it is about: what one
// of them made is requested from another.
//
//	roundrobin http://127.0.0.1:2024 http://127.0.0.1:2025
//	roundrobin -listen 127.0.0.1:8001 http://127.0.0.1:2024 http://127.0.0.1:2025
//
// Its first line says where it listens: on a free port, unless -listen names one. It ends with SIGTERM or an interrupt.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
)

func main() {
	log.SetFlags(0)
	listen := flag.String("listen", "127.0.0.1:0", "`address` to listen on")
	flag.Parse()
	if err := serve(*listen, flag.Args()); err != nil {
		log.Fatal("roundrobin: ", err)
	}
}

func serve(listen string, addresses []string) error {
	proxy, err := newProxy(addresses)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	srv := &http.Server{Handler: proxy} //nolint:gosec // who asks is a test of this machine, and may take its time
	context.AfterFunc(ctx, func() { _ = srv.Close() })
	fmt.Printf("roundrobin listening on http://%s\n", listener.Addr())
	if err := srv.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// newProxy returns a proxy in front of servers.
func newProxy(addresses []string) (http.Handler, error) {
	if len(addresses) == 0 {
		return nil, errors.New("name the servers")
	}
	servers := make([]*url.URL, len(addresses))
	for i, address := range addresses {
		var err error
		if servers[i], err = url.Parse(address); err != nil {
			return nil, err
		}
	}
	var count atomic.Uint64
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(servers[(count.Add(1)-1)%uint64(len(servers))])
			r.Out.Host = r.In.Host
			// It is no proxy of its own: what a client, or a proxy before it, says of the way stays.
			for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Port", "X-Forwarded-Proto"} {
				if given, ok := r.In.Header[name]; ok {
					r.Out.Header[name] = given
				}
			}
		},
		// Events are passed on as they come.
		FlushInterval: -1,
		// A test may ask many things at once; and what is compressed or not is between a client and the server.
		Transport: &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true},
		ErrorLog:  log.New(os.Stderr, "", 0),
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A server may answer before this side has seen the end of the request's body. Without this the body is closed by the answer, and the
		// connection with it, in mid-stream.
		_ = http.NewResponseController(w).EnableFullDuplex()
		forward.ServeHTTP(w, r)
	}), nil
}
