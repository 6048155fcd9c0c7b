package sandbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"understudy/internal/group"
)

// Times of an engine at the start of the server.
const (
	pingTime  = 5 * time.Second  // to answer
	serveTime = 20 * time.Second // for podman to serve the API
	pingAgain = 50 * time.Millisecond
)

// findEngine returns a client of the first engine that answers. The error names all that were tried.
func findEngine(o ContainerOptions, log *slog.Logger) (*docker, *service, error) {
	lookup := o.Lookup
	if lookup == nil {
		lookup = os.LookupEnv
	}
	addresses, named := o.Engines, o.Engines != nil
	if host, ok := lookup("DOCKER_HOST"); !named && ok && host != "" {
		addresses, named = []string{host}, true
		if verify, ok := lookup("DOCKER_TLS_VERIFY"); ok && verify != "" && !strings.HasPrefix(host, "unix:") {
			return nil, nil, fmt.Errorf("DOCKER_TLS_VERIFY is set, and the engine at %s would be spoken to without TLS: use a socket on this machine, such as one that ssh -L forwards", host)
		}
	}
	if !named {
		addresses = []string{"unix:///var/run/docker.sock", "unix:///run/podman/podman.sock"}
		if dir, ok := lookup("XDG_RUNTIME_DIR"); ok && dir != "" {
			addresses = append(addresses, "unix://"+dir+"/docker.sock", "unix://"+dir+"/podman/podman.sock")
		}
		if home, ok := lookup("HOME"); ok && home != "" { // Docker Desktop
			addresses = append(addresses, "unix://"+home+"/.docker/run/docker.sock")
		}
	}
	var tried []error
	for _, at := range addresses {
		d, err := newDocker(at)
		if err == nil {
			ctx, cancel := context.WithTimeout(context.Background(), pingTime) // at the start, or never
			err = d.ping(ctx)
			cancel()
			if err == nil {
				return d, nil, nil
			}
			d.close()
		}
		tried = append(tried, fmt.Errorf("no engine at %s: %w", at, err))
	}
	if !named {
		d, s, err := servePodman("podman", log)
		if err == nil {
			return d, s, nil
		}
		tried = append(tried, err)
	}
	return nil, nil, errors.Join(tried...)
}

// service is the program podman, serving the API to this server.
type service struct {
	cmd  *exec.Cmd
	dir  string
	gone chan struct{}
}

// servePodman starts podman's API on a socket that only this user reaches.
func servePodman(program string, log *slog.Logger) (*docker, *service, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return nil, nil, errors.New("podman is not installed")
	}
	dir, err := os.MkdirTemp("", "understudy-podman-")
	if err != nil {
		return nil, nil, fmt.Errorf("make a folder for podman's socket: %w", err)
	}
	at := "unix://" + filepath.Join(dir, "api.sock")
	printed := &capture{limit: edge}
	s := &service{cmd: exec.Command(path, "system", "service", "--time", "0", at), dir: dir, gone: make(chan struct{})} //nolint:noctx // end ends it
	// Not the folder of the server: conmon creates a file named oom in the working directory when a command is out of memory.
	s.cmd.Dir = dir
	s.cmd.SysProcAttr, s.cmd.Stdout, s.cmd.Stderr, s.cmd.WaitDelay = group.Attributes(), printed, printed, time.Second
	if err := s.cmd.Start(); err != nil {
		os.RemoveAll(dir)
		return nil, nil, fmt.Errorf("start podman: %w", err)
	}
	go func() {
		defer close(s.gone)
		_ = s.cmd.Wait()
	}()
	d, err := newDocker(at)
	if err == nil {
		err = s.ready(d)
	}
	if err != nil {
		s.end()
		head, _, _ := printed.end()
		return nil, nil, fmt.Errorf("podman serves no API: %w: %s", err, Head(strings.TrimSpace(Clean(head)), 500))
	}
	log.Info("podman serves its API", "pid", s.cmd.Process.Pid)
	return d, s, nil
}

// ready waits until the API answers.
func (s *service) ready(d *docker) error {
	ctx, cancel := context.WithTimeout(context.Background(), serveTime)
	defer cancel()
	tick := time.NewTicker(pingAgain)
	defer tick.Stop()
	for {
		if d.ping(ctx) == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-s.gone:
			return errors.New("it has ended")
		case <-ctx.Done():
			return fmt.Errorf("no answer within %s", serveTime)
		}
	}
}

// end ends the program, not the containers.
func (s *service) end() {
	if s == nil {
		return
	}
	_ = s.cmd.Process.Kill() // its group may have processes that watch containers
	<-s.gone
	os.RemoveAll(s.dir)
}
