import os, mmap, time, resource, sys, ctypes
L=int(sys.argv[1]); N=int(sys.argv[2]); 
buf=mmap.mmap(-1,L); buf.write(os.urandom(L))
z=mmap.mmap(-1,16<<20)
zv=memoryview(z)
p="direct-file"
def run(name, flags=0, ahead=0, falloc=0, dsync=False):
    if os.path.exists(p): os.unlink(p)
    fd=os.open(p,os.O_CREAT|os.O_RDWR|flags); fl=0
    os.fsync(fd)
    r0=resource.getrusage(resource.RUSAGE_SELF); t=time.monotonic(); lat=[]
    for i in range(N):
        e=(i+1)*L; t0=time.monotonic()
        if falloc and e>fl:
            os.posix_fallocate(fd,fl,falloc); fl+=falloc
        os.pwrite(fd,buf,i*L)
        if ahead and e>fl:
            os.pwrite(fd,zv[:ahead],e); fl=e+ahead
        os.fdatasync(fd); lat.append(time.monotonic()-t0)
    t=time.monotonic()-t; r=resource.getrusage(resource.RUSAGE_SELF)
    os.close(fd)
    c=(r.ru_utime+r.ru_stime-r0.ru_utime-r0.ru_stime); lat.sort()
    print(f"{name:34s} {t/N*1e6:8.0f} us wall {c/N*1e6:8.0f} us cpu  p50 {lat[N//2]*1e6:6.0f} p99 {lat[N*99//100]*1e6:6.0f}")
for k in range(2):
    run("grow buffered ahead 1", ahead=1<<20)
    run("grow direct", os.O_DIRECT)
    for a in (1,4,16): run(f"grow direct ahead {a} MiB", os.O_DIRECT, ahead=a<<20)
os.unlink(p)
