package child

import (
	"errors"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// family is a job: the worker and the processes that it started, which Windows kills when the server has ended.
type family struct {
	job    windows.Handle // 0: there is none
	worker *os.Process
}

// familyOf is called at once after the start. The interpreter of a virtual environment starts another one, which has to belong to the job
// too; it has hardly begun by then.
func familyOf(p *os.Process) family {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return family{worker: p}
	}
	limits := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{
		BasicLimitInformation: windows.JOBOBJECT_BASIC_LIMIT_INFORMATION{LimitFlags: windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE},
	}
	_, err = windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation, uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits)))
	if err == nil {
		var failed error
		err = p.WithHandle(func(process uintptr) { failed = windows.AssignProcessToJobObject(job, windows.Handle(process)) })
		err = errors.Join(err, failed)
	}
	if err != nil {
		_ = windows.CloseHandle(job)
		return family{worker: p}
	}
	return family{job: job, worker: p}
}

func (f family) kill() {
	if f.job != 0 {
		_ = windows.TerminateJobObject(f.job, 1)
		return
	}
	_ = f.worker.Kill()
}

func (f family) close() {
	if f.job != 0 {
		_ = windows.CloseHandle(f.job)
	}
}

// attributes puts a worker into a group of its own, so that Ctrl-C reaches only the server.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP}
}

// ResidentMemory is not available here: no limit is enforced.
func ResidentMemory(int) int64 { return 0 }

// socketpair is not available here: workers connect (loopback).
func socketpair() (ours, theirs *os.File, err error) { return nil, nil, errors.ErrUnsupported }

// OOMKills is not known here.
func OOMKills() int64 { return 0 }
