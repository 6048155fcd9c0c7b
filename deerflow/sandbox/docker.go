package sandbox

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// docker is a client of Docker's HTTP API, which Podman serves too. It is safe for concurrent use.
type docker struct {
	where  string // address, for people
	base   string // of paths
	client *http.Client
}

// connectTime bounds how long an engine may take to accept a connection.
const connectTime = 10 * time.Second

// maxReply bounds what is read of an answer that is no stream, in bytes.
const maxReply = 1 << 20

// newDocker returns a client for an address: unix:///path, tcp://host:port or http://host:port. It connects to nothing yet.
func newDocker(where string) (*docker, error) {
	u, err := url.Parse(where)
	if err != nil {
		return nil, fmt.Errorf("the address of an engine: %w", err)
	}
	network, at, host := "tcp", u.Host, u.Host
	switch u.Scheme {
	case "unix":
		network, at, host = "unix", cmp.Or(u.Path, u.Opaque), "engine"
	case "tcp", "http":
	default:
		return nil, fmt.Errorf("the address of an engine, %s, must begin with unix:// or tcp://", where)
	}
	dialer := net.Dialer{Timeout: connectTime}
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dialer.DialContext(ctx, network, at) },
		// Commands that run each have a connection; those are not reused.
		MaxIdleConns: 2, IdleConnTimeout: time.Minute,
	}
	return &docker{where: where, base: "http://" + host, client: &http.Client{Transport: transport}}, nil
}

func (d *docker) close() { d.client.CloseIdleConnections() }

// replyError is an answer of the engine that is no success.
type replyError struct {
	status  int
	message string
}

func (e *replyError) Error() string { return fmt.Sprintf("%s (%d)", e.message, e.status) }

// answered reports whether an error is an answer with one of these statuses.
func answered(err error, statuses ...int) bool {
	var e *replyError
	if !errors.As(err, &e) {
		return false
	}
	for _, s := range statuses {
		if e.status == s {
			return true
		}
	}
	return false
}

// open sends a request, and returns the answer, whose body the caller closes. The error for an answer that is no success is a *replyError.
func (d *docker) open(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var send io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		send = bytes.NewReader(raw)
	}
	r, err := http.NewRequestWithContext(ctx, method, d.base+path, send)
	if err != nil {
		return nil, err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := d.client.Do(r)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, err
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxReply)) // the status says enough
	var said struct{ Message, Cause string }
	if json.Unmarshal(text, &said) != nil || said.Message == "" {
		said.Message = cmp.Or(strings.TrimSpace(string(text)), http.StatusText(resp.StatusCode))
	}
	return nil, &replyError{resp.StatusCode, Head(Clean(said.Message), 500)}
}

// call sends a request and decodes the answer; into nil: it is of no interest.
func (d *docker) call(ctx context.Context, method, path string, body, into any) error {
	resp, err := d.open(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxReply))
	if err != nil {
		return err
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("answer of the engine: %w", err)
	}
	return nil
}

// ping asks whether an engine is there, and speaks its version of the API from now on.
func (d *docker) ping(ctx context.Context) error {
	resp, err := d.open(ctx, http.MethodGet, "/_ping", nil)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if version := resp.Header.Get("Api-Version"); version != "" && !strings.Contains(d.base[len("http://"):], "/") {
		d.base += "/v" + url.PathEscape(version)
	}
	return nil
}

// boxInfo is a container as a list has it.
type boxInfo struct {
	ID     string `json:"Id"`
	Labels map[string]string
}

// list returns all containers with a label.
func (d *docker) list(ctx context.Context, label string) (list []boxInfo, err error) {
	filters, err := json.Marshal(map[string][]string{"label": {label}})
	if err != nil {
		return nil, err
	}
	return list, d.call(ctx, http.MethodGet, "/containers/json?all=true&filters="+url.QueryEscape(string(filters)), nil, &list)
}

// remove ends a container with all that runs in it. One that is not there is no error.
func (d *docker) remove(ctx context.Context, id string) error {
	err := d.call(ctx, http.MethodDelete, "/containers/"+url.PathEscape(id)+"?force=true&v=true", nil, nil)
	if answered(err, http.StatusNotFound, http.StatusConflict) { // conflict: it is being removed
		return nil
	}
	return err
}

// mountSpec is a folder of this machine in a container.
type mountSpec struct {
	Type     string
	Source   string
	Target   string
	ReadOnly bool
}

// ulimit is a limit of the processes in a container.
type ulimit struct {
	Name       string
	Soft, Hard int64
}

// boxSpec is what a container is made of.
type boxSpec struct {
	Image      string
	Cmd        []string
	User       string
	WorkingDir string
	Env        []string
	Labels     map[string]string
	HostConfig struct {
		NetworkMode string
		Memory      int64
		NanoCpus    int64
		PidsLimit   int64
		CapDrop     []string
		SecurityOpt []string
		Init        bool
		AutoRemove  bool
		Mounts      []mountSpec
		Ulimits     []ulimit `json:",omitempty"`
	}
}

// start makes and starts a container, and returns its ID. An image that is not there is fetched first.
func (d *docker) start(ctx context.Context, name string, spec boxSpec) (string, error) {
	var made struct {
		ID string `json:"Id"`
	}
	path := "/containers/create?name=" + url.QueryEscape(name)
	err := d.call(ctx, http.MethodPost, path, spec, &made)
	if answered(err, http.StatusNotFound) { // the image
		if err := d.pull(ctx, spec.Image); err != nil {
			return "", fmt.Errorf("fetch the image %s: %w", spec.Image, err)
		}
		err = d.call(ctx, http.MethodPost, path, spec, &made)
	}
	if err != nil {
		return "", err
	}
	if err := d.call(ctx, http.MethodPost, "/containers/"+url.PathEscape(made.ID)+"/start", nil, nil); err != nil {
		return made.ID, err
	}
	return made.ID, nil
}

// pull fetches an image. The engine reports progress, one object after the other, errors among them.
func (d *docker) pull(ctx context.Context, image string) error {
	if at := strings.LastIndexByte(image, ':'); at <= strings.LastIndexByte(image, '/') && !strings.Contains(image, "@") {
		image += ":latest" // else all of its versions are fetched
	}
	resp, err := d.open(ctx, http.MethodPost, "/images/create?fromImage="+url.QueryEscape(image), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	for progress := json.NewDecoder(resp.Body); ; {
		var p struct{ Error string }
		err := progress.Decode(&p)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case p.Error != "":
			return errors.New(Head(Clean(p.Error), 500))
		}
	}
}

// execSpec is a command in a container.
type execSpec struct {
	AttachStdout, AttachStderr bool
	Cmd                        []string
	Env                        []string
	WorkingDir                 string
}

// exec starts a command in a container, and returns its ID and its output, which demux reads. The caller closes it. An error of errGone means that the container is not
// there, or does not run, and the command has not been started.
func (d *docker) exec(ctx context.Context, box string, spec execSpec) (id string, output io.ReadCloser, err error) {
	spec.AttachStdout, spec.AttachStderr = true, true
	var made struct {
		ID string `json:"Id"`
	}
	err = d.call(ctx, http.MethodPost, "/containers/"+url.PathEscape(box)+"/exec", spec, &made)
	if err == nil {
		var resp *http.Response
		if resp, err = d.open(ctx, http.MethodPost, "/exec/"+url.PathEscape(made.ID)+"/start", map[string]bool{"Detach": false, "Tty": false}); err == nil {
			return made.ID, resp.Body, nil
		}
	}
	// Podman before 5 answers 500 for a container that has ended.
	if answered(err, http.StatusNotFound, http.StatusConflict) || answered(err, http.StatusInternalServerError) && !d.running(ctx, box) {
		err = fmt.Errorf("%w: %w", errGone, err)
	}
	return "", nil, err
}

var errGone = errors.New("the container has ended")

// execState is how a command goes.
type execState struct {
	Running  bool
	ExitCode *int
}

// execState returns how a command goes; errGone when its container is not there any more.
func (d *docker) execState(ctx context.Context, id string) (s execState, err error) {
	err = d.call(ctx, http.MethodGet, "/exec/"+url.PathEscape(id)+"/json", nil, &s)
	if answered(err, http.StatusNotFound) {
		err = fmt.Errorf("%w: %w", errGone, err)
	}
	return s, err
}

// running reports whether a container runs.
func (d *docker) running(ctx context.Context, box string) bool {
	var s struct{ State struct{ Running bool } }
	return d.call(ctx, http.MethodGet, "/containers/"+url.PathEscape(box)+"/json", nil, &s) == nil && s.State.Running
}

// demux reads the output of a command, whose parts have a header each: the stream, three zeros, and the length.
func demux(in io.Reader, out, errs io.Writer) error {
	var head [8]byte
	for {
		if _, err := io.ReadFull(in, head[:]); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		to := out
		switch {
		case head[1]|head[2]|head[3] != 0 || head[0] > 2:
			return errors.New("the engine sends output in an unknown form")
		case head[0] == 2:
			to = errs
		}
		if _, err := io.CopyN(to, in, int64(binary.BigEndian.Uint32(head[4:]))); err != nil {
			return err
		}
	}
}
