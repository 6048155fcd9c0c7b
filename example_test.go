package understudy_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"understudy"
	"understudy/graph/pregel"
)

// A server with one graph in Go, asked over HTTP.
func Example() {
	srv, err := understudy.New(understudy.Config{Addr: "127.0.0.1:0", Storage: understudy.Storage{Dir: ":memory:"}})
	if err != nil {
		panic(err)
	}
	type state struct {
		Text string `json:"text"`
	}
	g := pregel.NewStateGraph[state]()
	g.AddNode("louder", func(_ context.Context, s state) (any, error) { return state{strings.ToUpper(s.Text)}, nil })
	g.AddSequence(pregel.START, "louder", pregel.END)
	louder, err := g.Compile()
	if err != nil {
		panic(err)
	}
	if err := srv.Register("louder", "Says it louder.", louder); err != nil {
		panic(err)
	}

	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- srv.Run(ctx) }()

	res, err := http.Post("http://"+srv.Addr().String()+"/runs/wait", "application/json", strings.NewReader(`{"assistant_id": "louder", "input": {"text": "hello"}}`))
	if err != nil {
		panic(err)
	}
	defer res.Body.Close()
	var answer [64]byte
	n, _ := res.Body.Read(answer[:])
	fmt.Printf("%s\n", answer[:n])

	stop()
	fmt.Println(<-ended)
	// Output:
	// {"text":"HELLO"}
	// <nil>
}
