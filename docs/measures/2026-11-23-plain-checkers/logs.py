"""Writes a history of the workload `log` in EDN: sends and polls of ten logs at a time by five clients of a system that keeps
its logs in one place: `logs.py EVENTS FILE`. About 500 bytes an event: most of it is what polls return."""
import random, sys
N=int(sys.argv[1]); out=open(sys.argv[2],'w',buffering=1<<20)
R=random.Random(7)
CL=5; LENMAX=4; ASSIGN=16; WPK=1024; KEYS=10; POLLED=16
logs={}; keys=list(range(KEYS)); nk=KEYS; cnt={}; recent=[]
pos={} ; free=list(range(CL)); openops=[]; nextp=CL; unp={}
i=0;t=0
assigned=set()
def emit(p,ty,f,v):
    global i,t
    t+=R.randrange(1,3000)
    out.write("{:index %d, :time %d, :type :%s, :process %d, :f :%s, :value %s}\n"%(i,t,ty,p,f,v)); i+=1
def fm(mops):
    s=[]
    for m in mops:
        if m[0]=='p':
            if m[1] is None: s.append("[:poll]")
            else: s.append("[:poll {%s}]"%", ".join("%d [%s]"%(k," ".join("[%d %d]"%x for x in l)) for k,l in m[1]))
        else:
            s.append("[:send %d %s]"%(m[1], m[3] if m[2] is None else "[%d %d]"%(m[2],m[3])))
    return "["+" ".join(s)+"]"
while i<N or openops:
    if i<N and free and (not openops or R.random()<.5):
        p=free.pop(R.randrange(len(free)))
        if p not in assigned or R.randrange(ASSIGN)==0:
            if not recent: recent.append(keys[0])
            ks=sorted(set(recent)|(set(unp) if R.randrange(3)==0 and p in assigned else set()))
            assigned.add(p)
            emit(p,'invoke','assign',"["+" ".join(map(str,ks))+"]"); openops.append((p,'assign',ks)); continue
        mops=[]
        for _ in range(1+R.randrange(LENMAX)):
            if R.random()<.5: mops.append(['p',None])
            else:
                j=min(int(R.expovariate(.3)),KEYS-1); k=keys[j]
                cnt[k]=cnt.get(k,0)+1
                if cnt[k]>=WPK: keys[j]=nk; nk+=1
                if k in recent: recent.remove(k)
                recent.append(k); recent=recent[-KEYS:]
                mops.append(['s',k,None,cnt[k]])
        ps=sum(m[0]=='p' for m in mops)
        f='send' if ps==0 else 'poll' if ps==len(mops) else 'txn'
        emit(p,'invoke',f,fm(mops)); openops.append((p,f,mops))
    else:
        p,f,v=openops.pop(R.randrange(len(openops)))
        if f=='assign':
            old=pos.get(p,{}); pos[p]={k:old.get(k,0) for k in v}
            emit(p,'ok',f,"["+" ".join(map(str,v))+"]"); free.append(p); continue
        r=R.random()
        if r<.025:
            emit(p,'fail',f,fm(v)); free.append(p); continue
        for m in v:
            if m[0]=='p':
                l=[]
                for k in pos.get(p,{}):
                    lg=logs.get(k,[]); a=pos[p][k]; b=min(len(lg),a+POLLED); pos[p][k]=b
                    if a<b:
                        l.append((k,list(zip(range(a,b),lg[a:b]))))
                        if b==len(lg): unp.pop(k,None)
                m[1]=l
        for m in v:
            if m[0]=='s':
                lg=logs.setdefault(m[1],[]); m[2]=len(lg); lg.append(m[3]); unp[m[1]]=1
        if r<.05:
            for m in v:
                if m[0]=='p': m[1]=None
                else: m[2]=None
            emit(p,'info',f,fm(v)); free.append(nextp); nextp+=1
        else:
            emit(p,'ok',f,fm(v)); free.append(p)
# A client that polled nothing before polls all.
p=nextp
ks=sorted(logs)
emit(p,'invoke','assign',"["+" ".join(map(str,ks))+"]"); emit(p,'ok','assign',"["+" ".join(map(str,ks))+"]")
for k in ks:
    lg=logs[k]
    emit(p,'invoke','poll','[[:poll]]'); emit(p,'ok','poll',fm([['p',[(k,list(enumerate(lg)))]]]))
